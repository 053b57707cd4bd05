// The torch headers of the models and of the trainer, compiled once: torch/torch.h takes 25 s a file otherwise.
#pragma once

#include <torch/torch.h>
