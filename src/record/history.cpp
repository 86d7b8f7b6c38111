#include "record/history.hpp"

#include <set>

namespace spotlight {

std::vector<Column> HistoryColumns(const std::vector<Prompt>& eval) {
  std::vector<Column> columns = {
      {"eval_strict", "1", "held-out images that satisfy their prompt (GenEval), evaluation weights of this step"},
      {"eval_strict_se", "1", "standard error of eval_strict"},
      {"eval_soft", "1", "held-out mean share of satisfied conditions"},
      {"eval_tidy", "1", "held-out mean of geneval_tidy: 1 - extra objects / wanted objects"},
      {"eval_reward", "1", "held-out mean training reward"},
      {"reward_mean", "1", "mean reward of the iteration's rollouts"},
      {"reward_std", "1", "standard deviation of the iteration's rewards"},
      {"reward_left_out", "1", "rollouts that are left out because their reward or latents are not finite"},
      {"group_reward_std_mean", "1", "mean over prompts of the rewards' standard deviation within the group"},
      {"group_zero_spread_ratio", "1", "share of groups whose rewards are all equal: they teach nothing"},
      {"explore_images", "1", "images explored for the next iteration"},
      {"explore_seeds", "1", "seeds of each prompt that were to be explored for the next iteration"},
      {"explore_steps", "1", "denoising steps computed of each of them; the others reuse these"},
      {"explore_budget_s", "s", "wall time that the planner had for it (explore/budget = deadline)"},
      {"explore_rho", "1", "mean Spearman correlation of explored and fresh rewards of the kept seeds"},
      {"explore_control_r", "1", "correlation of both rewards over the seeds that were kept by chance, lately"},
      {"explore_reward_std_mean", "1", "mean over prompts of the explored rewards' standard deviation"},
      {"policy_loss", "1", "clipped objective"},
      {"policy_kl", "1", "KL to the base model per latent element (only with train/kl_beta > 0)"},
      {"policy_approx_kl", "1", "half the mean squared log-ratio"},
      {"policy_clip_frac_high", "1", "share of pairs clipped above 1 + clip_range"},
      {"policy_clip_frac_low", "1", "share of pairs clipped below 1 - clip_range"},
      {"policy_ratio_mean", "1", "mean probability ratio over all updates"},
      {"policy_ratio_dev", "1", "mean |ratio - 1| over all updates"},
      {"policy_ratio_max_dev", "1", "largest |ratio - 1| over all updates"},
      {"policy_ratio_first_mean", "1", "mean ratio before the first update; exactly 1 if all is well"},
      {"policy_ratio_first_max_dev", "1", "largest |ratio - 1| before the first update; exactly 0 if all is well"},
      {"policy_pairs", "1", "(sample, step) pairs trained on"},
      {"optim_grad_norm", "1", "mean gradient norm before clipping"},
      {"optim_updates", "1", "optimizer updates of the iteration"},
      {"time_rollout_s", "s", "wall time of rollout, evaluation and scoring"},
      {"time_train_s", "s", "wall time of training, exploration overlapping"},
      {"time_push_s", "s", "of time_train_s: wall time in which the first trainer handed over the new weights"},
      {"time_explore_tail_s", "s", "wall time that exploration went on after training's end"},
      {"time_record_s", "s", "wall time of files and checkpoints of the iteration before"},
      {"time_step_s", "s", "wall time of the iteration"},
      {"perf_images_per_s", "1/s", "images denoised per second of the iteration, exploration and evaluation included"},
      {"ranks_reserved", "1", "trainers"},
      {"ranks_spot", "1", "explorers"},
      {"cost_reserved_rank_h", "h", "rank-hours of reserved ranks since the run began"},
      {"cost_spot_rank_h", "h", "rank-hours of spot ranks since the run began"},
      {"cost_price", "currency", "price of both, in the currency of cost/currency"},
      {"cost_spot_idle_h", "h", "of cost_spot_rank_h: alive, with nothing to do"},
      {"cost_spot_regroup_h", "h", "of cost_spot_rank_h: forming new groups"},
      {"cost_spot_draining_h", "h", "of cost_spot_rank_h: between a notice of preemption and the end"},
      {"cost_spot_lost_h", "h", "of cost_spot_rank_h: after the last report of a rank that was lost"},
      {"goodput", "1", "denoising steps that were kept / all that were done, since the run began"},
  };
  std::set<std::string> tags;
  for (const Prompt& prompt : eval) tags.insert(prompt.tag);
  for (const std::string& tag : tags) {
    if (!tag.empty()) columns.push_back({"eval_strict_" + tag, "1", "eval_strict of the prompts tagged " + tag});
  }
  return columns;
}

void AddEvaluation(const Evaluation& evaluation, std::map<std::string, double>& values) {
  values["eval_strict"] = evaluation.strict;
  values["eval_strict_se"] = evaluation.strict_error;
  values["eval_soft"] = evaluation.soft;
  values["eval_tidy"] = evaluation.tidy;
  values["eval_reward"] = evaluation.reward;
  for (const auto& [tag, strict] : evaluation.strict_by_tag) {
    if (!tag.empty()) values["eval_strict_" + tag] = strict;
  }
}

void AddCost(const CostLedger& ledger, std::map<std::string, double>& values) {
  values["cost_reserved_rank_h"] = ledger.Seconds(Pool::kReserved) / 3600;
  values["cost_spot_rank_h"] = ledger.Seconds(Pool::kSpot) / 3600;
  values["cost_price"] = ledger.Cost();
  for (const Use use : {Use::kIdle, Use::kRegroup, Use::kDraining, Use::kLost}) {
    values["cost_spot_" + std::string(UseName(use)) + "_h"] = ledger.Seconds(Pool::kSpot, use) / 3600;
  }
  values["goodput"] = ledger.Goodput();
}

}  // namespace spotlight
