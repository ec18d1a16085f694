// Package report describes how a run went: the outcome of every sample, rewards, durations and the
// collector's decisions. [Read] builds a [Report] from the files of a run alone, so it also works
// on a run that is in progress or was killed. [Page] writes the report as a web page.
//
//	run.json ──────────────► planned
//	_commits/ ─────────────► committed, bytes
//	data/, failures/ ──────► rewards, lengths, durations, classes   (no tokens are read)
//	logs/ ─────────────────► invocations, limits, retries, samples in flight, policy lags
//	journal/ ──────────────► attempts without an outcome
//	                │
//	                └─ Read ─► Report ─► report.json, and Page ─► report.html (package web)
//
// Every number in a report was measured. A number that was not measured is nil or absent, and the
// page shows it as missing. The logs, the journal and the write-ahead log of a fleet are in the
// spools of its workers, so a report of a fleet has only the numbers from the other files.
package report

import (
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// Version is the version of the format of report.json.
const Version = 1

// A Report is the content of report.json. Times are in UTC, durations in seconds, and lengths in
// tokens.
type Report struct {
	Version   int       `json:"version"`
	RunID     string    `json:"run_id"`
	CreatedAt time.Time `json:"created_at"` // time when the run was created
	WrittenAt time.Time `json:"written_at"` // time when this report was written
	Program   string    `json:"program"`    // version of rollout that wrote the report
	// State is running (a process is collecting into the folder), complete (no samples remain) or
	// incomplete. The workers of a fleet can be running while the fleet is incomplete.
	State   string   `json:"state"`
	Model   string   `json:"model,omitempty"`
	Servers []string `json:"servers,omitempty"`
	Tasks   int      `json:"tasks"`
	// Scores is the name of the scores set that the rewards come from. It is empty if they come from the
	// collection.
	Scores string `json:"scores,omitempty"`
	// Copied is true if the rows were collected before the run was created, because the run was imported or is a
	// copy with other rewards.
	Copied bool `json:"copied,omitempty"`
	// Partitions is the number of partitions with tasks, if the run is a fleet.
	Partitions int `json:"partitions,omitempty"`

	Coverage   Coverage   `json:"coverage"`
	Failures   Failures   `json:"failures"`
	Rewards    Rewards    `json:"rewards"`
	Groups     Groups     `json:"groups"`
	Lengths    Lengths    `json:"lengths"`
	Truncation Truncation `json:"truncation"`
	// Balance contains the terms of the sampled tokens in all shards. It is nil if all of them are
	// trained.
	Balance    *tokenize.Balance `json:"balance,omitempty"`
	Proof      Proof             `json:"verification"`
	Time       Time              `json:"time"`
	Throughput *Series           `json:"throughput,omitempty"` // nil if no sample has ended
	Controller Controller        `json:"controller"`
	Retries    Retries           `json:"retries"`
	Slowest    []Slow            `json:"slowest,omitempty"`
	Storage    Storage           `json:"storage"`
	Tail       *TailBias         `json:"tail_bias,omitempty"` // nil if no sample was cut
	// Filtered counts the samples in Coverage.Filtered by keep_reason.
	Filtered map[string]int `json:"filtered_by,omitempty"`
	Lag      *Lag           `json:"policy_lag,omitempty"` // nil if the logs contain no lags

	Invocations []Invocation `json:"invocations,omitempty"`
	// ClockJumps lists the first clock jumps found in the logs. If there are any, the mean
	// throughput is computed over the total duration of the invocations.
	ClockJumps []ClockJump `json:"clock_jumps,omitempty"`
	// Problems lists the data that could not be read. The numbers exclude this data.
	Problems []string `json:"problems,omitempty"`
	// Damage contains the errors behind the Problems that report damaged files.
	Damage []error `json:"-"`
	// Basis identifies the sources of the numbers about samples. If two reports have the same
	// nonempty Basis, these numbers are equal. Basis is empty if the numbers depend on more than
	// commits, or if a source could not be read.
	Basis string `json:"basis,omitempty"`
	// LastInvocation is the summary of the last process that ended normally.
	LastInvocation json.RawMessage `json:"last_invocation,omitempty"`
}

// Coverage counts samples. If Holds is true:
//
//	Planned == Committed + Filtered + Failed + Skipped + Remaining
type Coverage struct {
	Planned int `json:"planned"`
	// Committed counts the samples that are done and kept. Filtered counts the samples that are
	// done and have keep=false. All other numbers about samples with rows include both committed
	// and filtered samples.
	Committed int `json:"committed"`
	Failed    int `json:"failed"`
	// Skipped counts the samples that were cut by the tail policy or at their task's deadline. Late
	// counts the samples that were cut at a deadline. Unstarted counts the samples that never
	// started. It is nil without logs: such samples then count as
	// remaining. Remaining includes the samples that a damaged partition hides.
	Skipped   int  `json:"skipped"`
	Late      int  `json:"late,omitempty"`
	Unstarted *int `json:"unstarted,omitempty"`
	Remaining int  `json:"remaining"`
	// Durable counts the samples in Remaining that have ended but are only in the write-ahead log.
	// Numbers about samples with rows include these samples. Durable is nil if the run is not in a
	// folder of its own.
	Durable *int `json:"durable,omitempty"`
	// Holds is false if the folder contains more samples than were planned.
	Holds    bool `json:"holds"`
	Filtered int  `json:"filtered"`
	// Empty counts the samples in Committed and Filtered that have no row. It is 0 if a part of the
	// run is damaged. Superseded counts failures that a later success replaced.
	Empty      int `json:"empty"`
	Superseded int `json:"superseded"`
	// LostCalls counts the individually failed calls of committed samples. UntrainedCalls counts the
	// calls of all samples that are valid but not trained on.
	LostCalls      int `json:"lost_calls"`
	UntrainedCalls int `json:"untrained_calls,omitempty"`
}

// Failures groups the samples in Coverage.Failed.
type Failures struct {
	Classes []FailureClass `json:"classes,omitempty"` // most frequent first
	// Reasons counts quarantined samples and individually quarantined calls by reason.
	Reasons map[string]int `json:"reasons,omitempty"`
}

// A FailureClass is a class of failures with an example.
type FailureClass struct {
	Class   string         `json:"class"`
	Samples int            `json:"samples"`
	Stages  map[string]int `json:"stages"`
	Example string         `json:"example"` // error of one of the samples
	Advice  string         `json:"advice"`
}

// Rewards covers the samples that have at least one row.
type Rewards struct {
	Scored   int `json:"scored"`
	Unscored int `json:"unscored"`
	// Later counts the samples that are not in the scores set, because they were collected later. Unscored does
	// not include them.
	Later int           `json:"later,omitempty"`
	All   *Distribution `json:"all,omitempty"`
	// ByAttempt groups the rewards by the number of the attempt that counted.
	ByAttempt []AttemptReward `json:"by_attempt,omitempty"`
	// Pass is the lowest reward that counts as a pass.
	Pass   float64 `json:"pass"`
	Passed int     `json:"passed"`
	// PassAtK contains pass@k for k = 1, 2, 4, … as long as some group has k scored samples.
	PassAtK []PassAtK `json:"pass_at_k,omitempty"`
	// OverTime is nil if no sample was scored.
	OverTime *RewardSeries `json:"over_time,omitempty"`
}

// A RewardSeries contains the mean reward of the samples that ended in each step. The steps are Step
// seconds long, from Start. A mean is nil if no scored sample ended in the step.
type RewardSeries struct {
	Start time.Time  `json:"start"`
	Step  float64    `json:"step"`
	Mean  []*float64 `json:"mean"`
}

// An AttemptReward summarizes the samples for which attempt number Attempt counted.
type AttemptReward struct {
	Attempt int      `json:"attempt"`
	Samples int      `json:"samples"`
	Scored  int      `json:"scored"`
	Mean    *float64 `json:"mean,omitempty"`
}

// PassAtK is the mean, over Groups groups, of the estimated probability that at least one of k
// samples passes. If c of n scored samples passed, the unbiased estimate is 1 - C(n-c, k)/C(n, k).
// Groups with fewer than k scored samples are excluded.
type PassAtK struct {
	K      int     `json:"k"`
	Value  float64 `json:"value"`
	Groups int     `json:"groups"`
}

// Groups describes the groups of a run. A group consists of the samples of one task.
type Groups struct {
	// Groups counts the groups that have at least one row. Whole counts the groups in which every
	// sample has a row.
	Groups int `json:"groups"`
	Whole  int `json:"whole"`
	// Scored counts the groups with at least two scored samples. ZeroVariance counts the scored
	// groups whose rewards are all equal. Such groups do not provide a training signal. AllPass
	// counts the ZeroVariance groups in which all samples passed. NonePass counts the ZeroVariance
	// groups in which no sample passed.
	Scored       int `json:"scored"`
	ZeroVariance int `json:"zero_variance"`
	AllPass      int `json:"all_pass"`
	NonePass     int `json:"none_pass"`
	// Hardest contains the scored groups with the lowest mean rewards, the lowest first. It has at
	// most 100 groups.
	Hardest []TaskRewards `json:"hardest,omitempty"`
}

// TaskRewards summarizes the samples of one group that have at least one row.
type TaskRewards struct {
	Task      string  `json:"task"`
	Samples   int     `json:"samples"`
	Scored    int     `json:"scored"`
	Passed    int     `json:"passed"`
	RewardSum float64 `json:"reward_sum"` // of the scored samples
	Sampled   int64   `json:"sampled_tokens"`
	Equal     bool    `json:"equal,omitempty"` // true if all rewards are equal
}

// Lengths contains the lengths of prompts, rows and samples, in tokens.
type Lengths struct {
	// Prompt is the number of tokens in a row before its first sampled token. Sequence is the
	// number of all tokens in a row.
	Prompt   *Distribution `json:"prompt,omitempty"`
	Sequence *Distribution `json:"sequence,omitempty"`
	// Completion is the number of sampled tokens in a sample, as reported by the server. Calls is
	// the number of model calls in a sample, and RowsPer is the number of rows in a sample.
	Completion *Distribution `json:"completion,omitempty"`
	Calls      *Distribution `json:"calls,omitempty"`
	RowsPer    *Distribution `json:"rows_per_sample,omitempty"`
	Rows       int           `json:"rows"`
}

// Truncation counts samples, except in Flags and the token counts.
type Truncation struct {
	Samples int `json:"samples"`
	// Truncated counts the samples with a row that ended at a limit and not by the policy's choice.
	// Cut counts the samples with a row that was cut at tokens.max_row_tokens. Length counts the
	// samples whose last output ended at the engine's token limit. A sample can count in both Cut
	// and Length.
	Truncated int `json:"truncated"`
	Cut       int `json:"cut"`
	Length    int `json:"length"`
	// MaxSteps counts the samples that used all their steps. The rows of such samples do not count
	// as truncated.
	MaxSteps int            `json:"max_steps"`
	Status   map[string]int `json:"status,omitempty"`
	Stop     map[string]int `json:"stop_reasons,omitempty"`
	Flags    map[string]int `json:"flags,omitempty"` // number of rows with each flag
	// UnscoredTokens counts the sampled tokens with mask 0: tokens without a usable
	// log-probability, and tokens masked by tokens.after_stop. TrimmedTokens counts the sampled
	// tokens that were replaced.
	UnscoredTokens int64 `json:"unscored_tokens"`
	TrimmedTokens  int64 `json:"trimmed_tokens"`
}

// ends returns one sentence for each kind of limit at which samples ended.
func (t *Truncation) ends() []string {
	var out []string
	say := func(n int, what string) {
		if n > 0 {
			out = append(out, count(n)+" of "+count(t.Samples)+" samples "+what)
		}
	}
	say(t.Cut, "have a row that was cut at tokens.max_row_tokens")
	say(t.Length, "have a row whose last output ended at the engine's token limit")
	say(t.MaxSteps, "used all their steps")
	return out
}

// Proof counts rows by the evidence for their prompts and by policy version.
type Proof struct {
	Grades  map[string]int `json:"grades,omitempty"`
	Sources map[string]int `json:"prompt_sources,omitempty"`
	// Downgraded counts the rows that are not exact because their reply was lost. It is set only in
	// a run in which rows from received replies are exact.
	Downgraded int `json:"downgraded,omitempty"`
	// Versions is nil if no row has a policy version.
	Versions *Versions `json:"policy_versions,omitempty"`
}

// Time covers the samples that have at least one row. Failed covers the failed samples.
type Time struct {
	Total   *Distribution `json:"total,omitempty"`
	Working *Distribution `json:"working,omitempty"` // excludes queueing and backoff
	Failed  *Distribution `json:"failed,omitempty"`  // total time of failed samples
	// First is the time when the first sample started. Last is the time when the last sample ended.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

// A Series contains counts over time, in steps of Step seconds from Start. Tokens and Samples are
// the totals per step. A sample counts in the step in which it ended.
type Series struct {
	Start   time.Time `json:"start"`
	Step    float64   `json:"step"`
	Tokens  []float64 `json:"tokens"`
	Samples []float64 `json:"samples"`
	// TokensPerSecond is the mean rate from the first start to the last end, including pauses
	// between invocations. If the clock jumped, see Report.ClockJumps.
	TokensPerSecond float64 `json:"tokens_per_second"`
}
