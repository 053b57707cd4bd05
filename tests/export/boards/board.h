/* What a board does for a program. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_write(const char* text);
void board_exit(int code);
uint64_t board_ticks(void);
uint32_t board_stack_used(void); /* bytes of it that were ever written to */

#endif
