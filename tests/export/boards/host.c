/* The same for the machine that compiles. */
#include <stdio.h>
#include <stdlib.h>

#include "board.h"

void board_write(const char* text) { fputs(text, stdout); }
void board_exit(int code) { exit(code); }
uint64_t board_ticks(void) { return 0; }
uint32_t board_stack_used(void) { return 0; }
