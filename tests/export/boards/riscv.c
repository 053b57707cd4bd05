/* What a RISC-V processor needs to run a program in qemu (-M virt): start, output and end by semihosting, a clock. No
   libc. */
#include <stdint.h>

#include "board.h"

extern uint32_t data_source[], data_begin[], data_end[], bss_begin[], bss_end[], stack_begin[], stack_end[];
int main(void);

enum { WRITE0 = 0x04, EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

static void semihost(int operation, const void* argument) {
  register int a0 __asm__("a0") = operation;
  register const void* a1 __asm__("a1") = argument;
  __asm__ volatile(
      ".balign 16\n .option push\n .option norvc\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
}

void board_write(const char* text) { semihost(WRITE0, text); }

void board_exit(int code) {
  const uint32_t reason[2] = {APPLICATION_EXIT, (uint32_t)code};
  semihost(EXIT_EXTENDED, reason);
  for (;;) {
  }
}

/* Instructions. */
uint64_t board_ticks(void) {
  uint32_t high, low, again;
  do
    __asm__ volatile("csrr %0, minstreth\n csrr %1, minstret\n csrr %2, minstreth"
                     : "=r"(high), "=r"(low), "=r"(again));
  while (high != again);
  return (uint64_t)high << 32 | low;
}

#define PAINT 0xA5A5A5A5u
uint32_t board_stack_used(void) {
  const uint32_t* word = stack_begin;
  while (word < stack_end && *word == PAINT) ++word;
  return (uint32_t)((const char*)stack_end - (const char*)word);
}

__attribute__((used)) static void fault(void) {
  board_write("fault\n");
  board_exit(99);
}

__attribute__((used)) static void begin(void) {
  for (uint32_t *from = data_source, *to = data_begin; to < data_end;) *to++ = *from++;
  for (uint32_t* to = bss_begin; to < bss_end;) *to++ = 0;
  uint32_t* sp;
  __asm__ volatile("mv %0, sp" : "=r"(sp));
  for (uint32_t* to = stack_begin; to < sp - 16; ++to) *to = PAINT;
  board_exit(main());
}

/* First in the image: where qemu begins. Faults come back with the stack at its end; 0x6000: the floating-point unit.
 */
__asm__(
    ".section .vectors,\"ax\"\n.globl reset\n"
    "reset:\n la sp, stack_end\n la t0, trap\n csrw mtvec, t0\n li t0, 0x6000\n csrs mstatus, t0\n call begin\n"
    ".balign 4\ntrap:\n la sp, stack_end\n call fault\n.text\n");
