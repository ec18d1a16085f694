package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// foreign maps a setting to the names that TRL, verl, OpenRLHF, slime, vLLM and SGLang use for the
// same thing.
var foreign = map[string][]string{
	"agent.context_window":  {"max_model_len", "max_length", "max_seq_len", "max_seq_length", "context_length"},
	"agent.max_steps":       {"max_turns", "max_assistant_turns", "max_tool_calling_iterations", "max_iterations"},
	"agent.model":           {"model_id", "model_name", "model_path", "model_name_or_path"},
	"agent.system":          {"system_prompt"},
	"agent.temperature":     {"temperature", "temp", "rollout_temperature", "sampling_temperature"},
	"output.dir":            {"output_dir", "output_path", "save_dir", "save_path", "output"},
	"reward.kind":           {"reward_fn", "reward_func", "reward_funcs", "reward_function", "custom_reward_function", "rm_type", "scorer", "verifier", "rubric"},
	"run.attempt_timeout":   {"timeout", "request_timeout"},
	"run.retries":           {"max_retries", "num_retries"},
	"server.max_in_flight":  {"concurrency", "max_concurrency", "max_concurrent", "max_num_seqs", "max_running_requests", "max_inflight", "num_workers", "workers", "parallel"},
	"server.password":       {"api_key", "token"},
	"server.urls":           {"base_url", "server_url", "vllm_server_base_url", "api_base", "endpoint", "url", "host"},
	"tasks.file":            {"dataset", "dataset_name", "dataset_path", "prompt_data", "train_file", "train_files", "data_path", "data", "input"},
	"tasks.limit":           {"max_samples", "num_examples", "train_max_samples"},
	"tasks.samples":         {"n", "group_size", "num_generations", "num_samples", "n_samples", "n_samples_per_prompt", "samples_per_prompt", "num_return_sequences", "rollouts_per_example", "num_rollouts", "rollout_n"},
	"tokens.max_row_tokens": {"max_response_length", "max_total_tokens"},
	"tokens.tokenizer":      {"tokenizer_path", "tokenizer_name", "tokenizer_name_or_path", "chat_template", "processing_class"},
}

// overrides maps a sampling parameter of rollout tap --set to the names that other programs use for
// it. A Letta server does not let its clients set these parameters.
var overrides = map[string][]string{
	"max_new_tokens": {"max_tokens", "max_new_tokens", "max_completion_length", "max_completion_tokens", "response_length", "rollout_max_response_len"},
	"min_p":          {"min_p"},
	"seed":           {"seed"},
	"stop":           {"stop", "stop_strings"},
	"stop_token_ids": {"stop_token_ids"},
	"top_k":          {"top_k"},
	"top_p":          {"top_p"},
}

// FlagHint returns a hint for an unknown flag if the flag is another program's name for a setting,
// such as --group-size. Otherwise it returns "". The parameter flags contains the flags of the
// verb.
func FlagHint(flags *pflag.FlagSet, name string) string {
	s, override := NewLoader(func(string) string { return "" }).ofForeign(name)
	switch {
	case override != "" && flags.Lookup("set") != nil:
		return "use --set " + override + "=VALUE"
	case flags.Lookup("config") == nil:
		return ""
	case override != "":
		return overrideHint(override)
	case s == nil:
		return ""
	case s.flag == "":
		return "set " + s.Key + " in the configuration file (-c), or set " + s.env()
	case flags.Lookup(s.flag) != nil:
		return "did you mean --" + s.flag + "?"
	}
	return ""
}

// ofForeign looks up another program's name for a setting, such as rollout.n, group-size or
// max_tokens. It returns the setting, or the name of a sampling parameter for rollout tap --set, or
// neither.
func (l *Loader) ofForeign(name string) (s *Setting, override string) {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	name = name[strings.LastIndexByte(name, '.')+1:]
	for key, names := range foreign {
		if slices.Contains(names, name) {
			return l.ByKey[key], ""
		}
	}
	for override, names := range overrides {
		if slices.Contains(names, name) {
			return nil, override
		}
	}
	return nil, ""
}

func overrideHint(name string) string {
	return "the server chooses " + name + " (to override it, use rollout tap --set " + name + "=VALUE)"
}
