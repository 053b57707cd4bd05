// Torch once for every test file.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
