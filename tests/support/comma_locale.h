// tests/support/comma_locale.h -- a process whose numbers have a decimal comma, and points between thousands.
#pragma once

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

#include "temporary_directory.h"

namespace remat::test {

/// While it lives, printf() writes 1,5 and streams write 1.234,5: as after setlocale() of a toolkit, and
/// std::locale::global(). The C library's locale is made for the test, since a machine may have none of this kind.
class CommaLocale {
 public:
  CommaLocale() : before_(std::setlocale(LC_ALL, nullptr)) {
    directory_.write(
        "comma.def",
        "LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\n");
    // What the definition leaves out is warned of, and left as it is in "C".
    const std::string made = directory_.path("comma");
    [[maybe_unused]] const int status =
        std::system(("localedef -c -i " + directory_.path("comma.def") + " " + made + " > /dev/null 2>&1").c_str());
    setenv("LOCPATH", made.substr(0, made.rfind('/')).c_str(), 1);
    if (std::setlocale(LC_ALL, "comma") == nullptr) std::setlocale(LC_ALL, "de_DE.UTF-8");
    unsetenv("LOCPATH");
    streams_ = std::locale::global(std::locale(std::locale::classic(), new Commas));
  }
  ~CommaLocale() {
    std::locale::global(streams_);
    std::setlocale(LC_ALL, before_.c_str());
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  /// False where the C library could not be given such a locale: no localedef, and no German either.
  static bool works() { return std::string(std::localeconv()->decimal_point) == ","; }

 private:
  struct Commas : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };

  TemporaryDirectory directory_;
  std::string before_;
  std::locale streams_;
};

}  // namespace remat::test
