/* What the compiler may call where there is no libc. */
#include <stddef.h>

void* memset(void* to, int value, size_t count) {
  for (unsigned char* byte = to; count > 0; --count) *byte++ = (unsigned char)value;
  return to;
}
void* memcpy(void* restrict to, const void* restrict from, size_t count) {
  const unsigned char* source = from;
  for (unsigned char* byte = to; count > 0; --count) *byte++ = *source++;
  return to;
}
