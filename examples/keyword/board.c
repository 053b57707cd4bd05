/* A board that learns a word from ten utterances: says what it knows, learns, says it again. */
#include "board.h"
#include "model.h"
#include "utterances.h"

enum { NEW = 11, ROUNDS = 3, KNOWN = 1 }; /* known words after each utterance of the new one, lest they be forgotten */
#define COUNT(array) ((int)(sizeof array / sizeof *array))

static void hear(const signed char* features) {
  for (int i = 0; i < 490; ++i) model_input[i] = (float)features[i] / 8.0f;
}

static float learn(const signed char* features, int word) {
  hear(features);
  model_target[0] = word;
  return model_step(0.003f);
}

static int word_of(const signed char* features) {
  hear(features);
  const float* scores = model_predict();
  int best = 0;
  for (int word = 1; word < MODEL_OUTPUT; ++word)
    if (scores[word] > scores[best]) best = word;
  return best;
}

static void write_number(int number) {
  char text[12];
  int at = 11;
  text[at] = 0;
  do text[--at] = (char)('0' + number % 10);
  while (number /= 10);
  board_write(text + at);
}

static void write_ratio(const char* what, int part, int of) {
  board_write(what);
  write_number(part);
  board_write(" of ");
  write_number(of);
}

/* Of utterances that are not learnt from. */
static void try_words(const char* when) {
  int right = 0, right_new = 0;
  for (int i = 0; i < COUNT(new_test_x); ++i) right_new += word_of(new_test_x[i]) == NEW;
  for (int i = 0; i < COUNT(test_x); ++i) right += word_of(test_x[i]) == test_y[i];
  board_write(when);
  write_ratio(": new word ", right_new, COUNT(new_test_x));
  write_ratio(", known words ", right, COUNT(test_x));
  board_write("\n");
}

int main(void) {
  int steps = 0, old = 0;
  try_words("before");
  for (int round = 1; round <= ROUNDS; ++round) {
    float loss = 0.0f;
    for (int i = 0; i < COUNT(new_x); ++i) {
      loss += learn(new_x[i], NEW);
      for (int k = 0; k < KNOWN; ++k, old = (old + 1) % COUNT(old_x)) learn(old_x[old], old_y[old]);
      steps += 1 + KNOWN;
    }
    write_ratio("round ", round, ROUNDS);
    board_write(": loss of the new word, in thousandths: ");
    write_number((int)(1000.0f * loss / (float)COUNT(new_x)));
    board_write("\n");
  }
  try_words("after");
  write_number(steps);
  board_write(" steps, bytes of stack: ");
  write_number((int)board_stack_used());
  board_write("\n");
  return 0;
}
