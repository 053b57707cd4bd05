# What needs no documentation of its own: comparisons, and the moves and copies that the language defines.
s/^.*operator==?\(.*$//
s/^.*\([A-Za-z]+&&\) noexcept;.*$//
s/^.*\(const ErrorInFlight& .*$//
