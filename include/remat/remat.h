// remat/remat.h -- everything.
#pragma once

#include <remat/budget.h>      // how many bytes
#include <remat/checkpoint.h>  // checkpoint(fn, inputs...), checkpoint_sequential
#include <remat/error.h>       // Error, BudgetError, InternalError
#include <remat/memory.h>      // current, peak, limit
#include <remat/policy.h>      // scopes, keep(tensor)
#include <remat/report.h>      // what a step cost
#include <remat/session.h>     // Session, Step
