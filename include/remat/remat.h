// remat/remat.h -- everything.
#pragma once

#include <remat/allocation_notes.h>       // the blocks of memory that a step takes
#include <remat/budget.h>                 // how many bytes
#include <remat/checkpoint.h>             // checkpoint(fn, inputs...), checkpoint_sequential
#include <remat/checkpoints.h>            // plans of so many checkpoints
#include <remat/device_estimate.h>        // what they take of a GPU's memory, without the GPU
#include <remat/error.h>                  // Error, BudgetError, InternalError
#include <remat/export.h>                 // a training step as C for microcontrollers
#include <remat/file_memory.h>            // frozen weights in a file
#include <remat/fit.h>                    // the largest batch that fits
#include <remat/fit_steps.h>              // the same for a function that makes a step of a batch
#include <remat/graph.h>                  // a recorded step as plain data
#include <remat/head_trial.h>             // whether tiles of a head are worth their time
#include <remat/linear_cross_entropy.h>   // heads whose logits are never whole
#include <remat/memory.h>                 // current, peak, limit
#include <remat/module_policies.h>        // policies by the paths of modules
#include <remat/operators.h>              // which of your own operators may run again
#include <remat/optimizer_in_backward.h>  // update parameters while backward runs
#include <remat/paged_gradients.h>        // gradients in a file
#include <remat/paged_optimizer.h>        // state of optimizers in a file
#include <remat/plan.h>                   // what becomes of each saved value
#include <remat/planner.h>                // from a graph and a budget to a plan
#include <remat/policy.h>                 // scopes, keep(tensor)
#include <remat/pool.h>                   // sessions that share bytes
#include <remat/ranks.h>                  // processes that run their steps together
#include <remat/report.h>                 // what a step cost
#include <remat/rounds.h>                 // how long steps take on a busy machine
#include <remat/run.h>                    // all that is known of a step, and pictures of it
#include <remat/session.h>                // Session, Step
#include <remat/state_pager.h>            // tensors that are in a file while nobody uses them
#include <remat/step_in_parts.h>          // an optimizer's step with small temporary tensors
#include <remat/tiled_mlp.h>              // the same for feed-forward blocks
#include <remat/tiles.h>                  // in which tiles, and why
#include <remat/timeline.h>               // its memory, moment by moment
