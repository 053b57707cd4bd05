/* What a Cortex-M needs to run a program in qemu: vectors, start, output and end by semihosting, a clock. No libc. */
#include <stdint.h>

#include "board.h"

extern uint32_t data_source[], data_begin[], data_end[], bss_begin[], bss_end[], stack_begin[], stack_end[];
int main(void);

enum { WRITE0 = 0x04, EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

static void semihost(int operation, const void* argument) {
  register int r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void board_write(const char* text) { semihost(WRITE0, text); }

void board_exit(int code) {
  const uint32_t reason[2] = {APPLICATION_EXIT, (uint32_t)code};
  semihost(EXIT_EXTENDED, reason);
  for (;;) {
  }
}

/* SysTick counts down from 2^24 - 1. Under -icount qemu's time goes by instructions. */
#define SYSTICK ((volatile uint32_t*)0xE000E010)
static volatile uint32_t turns;
static void systick(void) { ++turns; }

uint64_t board_ticks(void) {
  uint32_t before, count;
  do {
    before = turns;
    count = SYSTICK[2];
  } while (before != turns);
  return ((uint64_t)before << 24) + (0xFFFFFF - count);
}

#define PAINT 0xA5A5A5A5u
uint32_t board_stack_used(void) {
  const uint32_t* word = stack_begin;
  while (word < stack_end && *word == PAINT) ++word;
  return (uint32_t)((const char*)stack_end - (const char*)word);
}

void reset(void) {
#ifdef __ARM_FP
  *(volatile uint32_t*)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */
  __asm__ volatile("dsb\n isb");
#endif
  for (uint32_t *from = data_source, *to = data_begin; to < data_end;) *to++ = *from++;
  for (uint32_t* to = bss_begin; to < bss_end;) *to++ = 0;
  uint32_t* sp;
  __asm__ volatile("mov %0, sp" : "=r"(sp));
  for (uint32_t* to = stack_begin; to < sp - 16; ++to) *to = PAINT;
  SYSTICK[1] = 0xFFFFFF;
  SYSTICK[2] = 0;
  SYSTICK[0] = 7;
  board_exit(main());
}

static void fault(void) {
  __asm__ volatile("mov sp, %0" : : "r"(stack_end)); /* where it was may be no memory */
  board_write("fault\n");
  board_exit(99);
}

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    stack_end, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, systick};
