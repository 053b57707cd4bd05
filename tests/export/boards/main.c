/* Trains a model on batches.c, and writes each loss and the parameters' checksum as hexadecimal bits. */
#include "batches.h"
#include "board.h"
#include "model.h"

static uint32_t bits_of(float value) {
  union {
    float f;
    uint32_t u;
  } both;
  both.f = value;
  return both.u;
}

static void write_number(const char* name, uint64_t value, unsigned base) {
  char text[24];
  int at = 23;
  text[at] = 0;
  do text[--at] = "0123456789abcdef"[value % base];
  while (value /= base);
  board_write(name);
  board_write(text + at);
  board_write("\n");
}

int main(void) {
  uint64_t ticks = 0;
  for (int step = 0; step < BATCH_STEPS; ++step) {
    load_batch(step % BATCH_COUNT);
    const uint64_t begin = board_ticks();
    const float loss = model_step(BATCH_RATE);
    if (step > 0) ticks += board_ticks() - begin;
    write_number("loss ", bits_of(loss), 16);
  }
  uint32_t hash = 2166136261u;
  for (int i = 0; i < MODEL_PARAMETERS; ++i) hash = (hash ^ bits_of(model_parameters[i])) * 16777619u;
  write_number("parameters ", hash, 16);
  write_number("ticks ", ticks / (BATCH_STEPS > 1 ? BATCH_STEPS - 1 : 1), 10);
  write_number("stack ", board_stack_used(), 10);
  return 0;
}
