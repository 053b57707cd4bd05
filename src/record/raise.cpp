#include "record/raise.h"

#include <atomic>

namespace remat {
namespace {

std::atomic<ErrorTranslator> g_translator{nullptr};

}  // namespace

void set_error_translator(ErrorTranslator translator) { g_translator = translator; }
ErrorTranslator error_translator() { return g_translator; }

}  // namespace remat
