// `spotlight pretrain`: makes the tiny base model by flow matching on procedurally drawn images. One process.
//
// model/path gives what is not trained: vocabulary.json, linear_vae.safetensors, detector.safetensors. The result,
// <run>/final, is a model folder of its own that model/path of a main job can name.
#pragma once

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

int RunPretrain(const CommandLine& command, World& world);
int CheckPretrainJob(const CommandLine& command);

}  // namespace spotlight
