// src/device/streams.h -- the order between streams of a device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace remat::device {

/// That which this thread uses on `device`.
inline c10::Stream stream_of_thread(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// What is reached when all that `stream` has been given so far is done.
inline c10::Event event_in(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// What `stream` is given from now on begins after what `other` has been given so far.
inline void wait_for(const c10::Stream& other, const c10::Stream& stream) { event_in(other).block(stream); }

}  // namespace remat::device
