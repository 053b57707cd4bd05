// cli/child_process.h -- processes that this one starts as copies of itself.
#pragma once

#include <string>

#include <sys/types.h>

namespace remat::cli {

/// fork(), of a process that has one thread and has computed nothing with torch. The child ends with this process,
/// however that ends, and heeds signals of this process alone: Ctrl-C at a terminal, and `timeout`, reach all of them.
/// Throws Error where the system refuses.
pid_t fork_child();

/// "[process] the process of NAME was ended by signal 9, ...; what to do", from the status that waitpid() gave.
std::string how_it_ended(const std::string& name, int status);

}  // namespace remat::cli
