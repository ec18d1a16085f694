// Package report says how a run went: what became of every sample, how it was
// rewarded, how long it took and what the collector did meanwhile. Read makes a
// Report of the files of a run and of nothing else, so it works on a run that is
// being collected and on one that was killed; Page renders it.
//
//	run.json ──────────────► planned
//	_commits/ ─────────────► committed, bytes
//	data/, failures/ ──────► rewards, lengths, durations, classes   (no tokens are read)
//	logs/ ─────────────────► invocations, limits, retries, samples in flight, policy lags
//	journal/ ──────────────► attempts without an outcome
//	                │
//	                └─ Read ─► Report ─► report.json, and Page ─► report.html
//
// Every number was measured. What was not is nil, or absent, and the page says so.
package report

import (
	"encoding/json"
	"time"
)

// Version is the version of report.json.
const Version = 1

// A Report is report.json. Times are UTC, durations seconds, lengths tokens.
type Report struct {
	Version   int       `json:"version"`
	RunID     string    `json:"run_id"`
	CreatedAt time.Time `json:"created_at"` // of the run
	WrittenAt time.Time `json:"written_at"` // of this report
	Program   string    `json:"program"`    // the version of rollout that wrote it
	// State is running (a process holds the run), complete (nothing remains) or
	// incomplete.
	State   string   `json:"state"`
	Model   string   `json:"model,omitempty"`
	Servers []string `json:"servers,omitempty"`
	Tasks   int      `json:"tasks"`

	Coverage   Coverage   `json:"coverage"`
	Failures   Failures   `json:"failures"`
	Rewards    Rewards    `json:"rewards"`
	Groups     Groups     `json:"groups"`
	Lengths    Lengths    `json:"lengths"`
	Truncation Truncation `json:"truncation"`
	Proof      Proof      `json:"verification"`
	Time       Time       `json:"time"`
	Throughput *Series    `json:"throughput,omitempty"` // nil: no finished sample
	Controller Controller `json:"controller"`
	Retries    Retries    `json:"retries"`
	Slowest    []Slow     `json:"slowest,omitempty"`
	Storage    Storage    `json:"storage"`
	Tail       *TailBias  `json:"tail_bias,omitempty"` // nil: nothing was cut
	// Filtered counts the samples of Coverage.Filtered by the reason (keep_reason).
	Filtered map[string]int `json:"filtered_by,omitempty"`
	Lag      *Lag           `json:"policy_lag,omitempty"` // nil: the logs have none

	Invocations []Invocation `json:"invocations,omitempty"`
	// ClockJumps are the first of those that the logs show. Throughput's mean is over the
	// time of the invocations then.
	ClockJumps []ClockJump `json:"clock_jumps,omitempty"`
	// Problems are what could not be read; the numbers leave it out.
	Problems []string `json:"problems,omitempty"`
	// Damage are those of them that say that a file is not what was written.
	Damage []error `json:"-"`
	// Basis names what the numbers about samples come of; a report with the same one has the
	// same numbers. Empty: they come of more than commits, or not all could be read.
	Basis string `json:"basis,omitempty"`
	// LastInvocation is what the last process that ended in order said of itself.
	LastInvocation json.RawMessage `json:"last_invocation,omitempty"`
}

// Coverage counts samples. Where Holds is true,
//
//	Planned == Committed + Filtered + Failed + Skipped + Remaining
type Coverage struct {
	Planned int `json:"planned"`
	// Committed counts the samples that are done and not left out, Filtered those that are
	// left out: their rows have keep=false. Whatever else this report says of samples with
	// rows, it says of both.
	Committed int `json:"committed"`
	Failed    int `json:"failed"`
	// Skipped counts samples that the tail policy cut, or the deadline of their task: Late is
	// the part of the latter. Unstarted is the part that were never taken up.
	Skipped   int `json:"skipped"`
	Late      int `json:"late,omitempty"`
	Unstarted int `json:"unstarted"`
	Remaining int `json:"remaining"`
	// Durable is the part of Remaining that has ended, is in the write-ahead log and in
	// no shard yet. Whatever this report says of samples with rows, it says of these too.
	Durable int `json:"durable"`
	// Holds is false where the folder holds more samples than were planned.
	Holds    bool `json:"holds"`
	Filtered int  `json:"filtered"`
	// Empty is the part of Committed and Filtered that has no row; Superseded counts failures that
	// a later success made void.
	Empty      int `json:"empty"`
	Superseded int `json:"superseded"`
	// LostCalls counts single calls in failures/ whose sample is committed.
	LostCalls int `json:"lost_calls"`
}

// Failures groups the samples of Coverage.Failed.
type Failures struct {
	Classes []FailureClass `json:"classes,omitempty"` // most frequent first
	// Reasons counts what was quarantined, single calls included, by its word.
	Reasons map[string]int `json:"reasons,omitempty"`
}

// A FailureClass is one class with an example.
type FailureClass struct {
	Class   string         `json:"class"`
	Samples int            `json:"samples"`
	Stages  map[string]int `json:"stages"`
	Example string         `json:"example"` // the error of one of them
	Advice  string         `json:"advice"`
}

// Rewards is over the samples with at least one row.
type Rewards struct {
	Scored   int           `json:"scored"`
	Unscored int           `json:"unscored"`
	All      *Distribution `json:"all,omitempty"`
	// ByAttempt is the reward of samples by the attempt that counted.
	ByAttempt []AttemptReward `json:"by_attempt,omitempty"`
	// Pass says what a pass is: a reward of at least that.
	Pass   float64 `json:"pass"`
	Passed int     `json:"passed"`
	// PassAtK is for k = 1, 2, 4, … while a group has k scored samples.
	PassAtK []PassAtK `json:"pass_at_k,omitempty"`
}

// An AttemptReward is over the samples whose attempt of that number counted.
type AttemptReward struct {
	Attempt int      `json:"attempt"`
	Samples int      `json:"samples"`
	Scored  int      `json:"scored"`
	Mean    *float64 `json:"mean,omitempty"`
}

// PassAtK is the mean over Groups of the unbiased estimate that at least one of k
// samples passes, 1 - C(n-c, k)/C(n, k) for c passes among n scored samples. Groups
// with fewer than k scored samples are left out.
type PassAtK struct {
	K      int     `json:"k"`
	Value  float64 `json:"value"`
	Groups int     `json:"groups"`
}

// Groups is about the samples of one task.
type Groups struct {
	// Groups counts those with at least one row, Whole those of them of which every
	// sample has one.
	Groups int `json:"groups"`
	Whole  int `json:"whole"`
	// ZeroVariance counts, of the Scored groups with two scored samples or more, those
	// whose rewards are all the same: they teach nothing. AllPass and NonePass are parts.
	Scored       int `json:"scored"`
	ZeroVariance int `json:"zero_variance"`
	AllPass      int `json:"all_pass"`
	NonePass     int `json:"none_pass"`
}

// Lengths are in tokens.
type Lengths struct {
	// Prompt is over rows: tokens before the first sampled one. Sequence is over rows
	// as well: all of their tokens.
	Prompt   *Distribution `json:"prompt,omitempty"`
	Sequence *Distribution `json:"sequence,omitempty"`
	// Completion is over samples: what the server counted as sampled. Calls are the
	// model's calls per sample, RowsPer the rows.
	Completion *Distribution `json:"completion,omitempty"`
	Calls      *Distribution `json:"calls,omitempty"`
	RowsPer    *Distribution `json:"rows_per_sample,omitempty"`
	Rows       int           `json:"rows"`
}

// Truncation is over samples, but for Flags and Unscored.
type Truncation struct {
	Samples int `json:"samples"`
	// Truncated counts samples with a row whose end the policy did not choose: Cut those
	// with a row that was cut at tokens.max_row_tokens, Length those with a row whose
	// last output the engine's limit of tokens ended. A sample may be both.
	Truncated int `json:"truncated"`
	Cut       int `json:"cut"`
	Length    int `json:"length"`
	// MaxSteps counts samples that used up their steps. Their rows are not truncated.
	MaxSteps int            `json:"max_steps"`
	Status   map[string]int `json:"status,omitempty"`
	Stop     map[string]int `json:"stop_reasons,omitempty"`
	Flags    map[string]int `json:"flags,omitempty"` // rows
	// UnscoredTokens counts sampled tokens under mask 0: tokens without a usable
	// log-probability, and tokens that tokens.after_stop masks. TrimmedTokens were replaced.
	UnscoredTokens int64 `json:"unscored_tokens"`
	TrimmedTokens  int64 `json:"trimmed_tokens"`
}

// ends says, one sentence each, which samples did not end as the policy chose.
func (t *Truncation) ends() []string {
	var out []string
	say := func(n int, what string) {
		if n > 0 {
			out = append(out, count(n)+" of "+count(t.Samples)+" samples "+what)
		}
	}
	say(t.Cut, "have a row that was cut at tokens.max_row_tokens")
	say(t.Length, "have a row whose last output the engine's limit of tokens ended")
	say(t.MaxSteps, "used up their steps")
	return out
}

// Proof counts rows.
type Proof struct {
	Grades  map[string]int `json:"grades,omitempty"`
	Sources map[string]int `json:"prompt_sources,omitempty"`
	// Downgraded rows are not exact because their answer was lost: those of answers that
	// were received are.
	Downgraded int `json:"downgraded,omitempty"`
	// Versions is nil where no row has a policy version.
	Versions *Versions `json:"policy_versions,omitempty"`
}

// Time is over the samples with at least one row, but for Failed.
type Time struct {
	Total   *Distribution `json:"total,omitempty"`
	Working *Distribution `json:"working,omitempty"` // without queueing and backoff
	Failed  *Distribution `json:"failed,omitempty"`  // total, of samples that failed
	// First and Last bound the samples: the first start and the last end.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

// A Series is over time, in steps of Step seconds from Start on. Tokens and Samples
// are per step, of the samples that ended in it.
type Series struct {
	Start   time.Time `json:"start"`
	Step    float64   `json:"step"`
	Tokens  []float64 `json:"tokens"`
	Samples []float64 `json:"samples"`
	// TokensPerSecond is the mean from the first start to the last end, pauses between
	// invocations included; but see Report.ClockJumps.
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// Controller is what the logs say about concurrency.
type Controller struct {
	Endpoints []EndpointLimit `json:"endpoints,omitempty"`
	Reasons   map[string]int  `json:"reasons,omitempty"`
	// Changes are the newest; LeftOut counts older ones.
	Changes []LimitChange `json:"changes,omitempty"`
	LeftOut int           `json:"left_out,omitempty"`
	// InFlight is what the status lines say.
	InFlight []Point `json:"in_flight,omitempty"`
}

// EndpointLimit is the limit of one endpoint over the run.
type EndpointLimit struct {
	Endpoint string `json:"endpoint"`
	Changes  int    `json:"changes"`
	Cuts     int    `json:"cuts"`
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	Last     int    `json:"last"`
}

// A LimitChange is one decision of the controller.
type LimitChange struct {
	At       time.Time `json:"at"`
	Endpoint string    `json:"endpoint"`
	From     int       `json:"from"`
	To       int       `json:"to"`
	Reason   string    `json:"reason"`
}

// A Point is a value at a moment.
type Point struct {
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
}

// Retries is what it took.
type Retries struct {
	// Attempts counts the samples with rows, and those that failed, by the number of
	// the attempt that counted.
	Attempts map[int]int `json:"attempts,omitempty"`
	// ByClass counts the retries in the logs by the class of the failure before them;
	// WaitSeconds is what they waited together. Nil: no log.
	ByClass     map[string]int `json:"by_class,omitempty"`
	Logged      int            `json:"logged"`
	WaitSeconds float64        `json:"wait_seconds"`
	// Open counts attempts that were begun and have no outcome: they are at work, or
	// their process died. Nil: no journal.
	Open *int `json:"open,omitempty"`
}

// Slow is one of the slowest samples.
type Slow struct {
	Row        int     `json:"row"` // as rollout inspect counts; -1: it failed, -2: it is in no shard yet
	SampleKey  string  `json:"sample_key"`
	TaskID     string  `json:"task_id"`
	Index      int     `json:"sample_index"`
	Attempt    int     `json:"attempt"`
	Seconds    float64 `json:"seconds"`
	Working    float64 `json:"working_seconds"`
	Calls      int     `json:"calls"`
	Completion int64   `json:"completion_tokens"`
	Status     string  `json:"status"` // or the class of the failure
	AgentID    string  `json:"agent_id,omitempty"`
}

// Storage is what lies in the folder.
type Storage struct {
	Commits       int   `json:"commits"`
	DataShards    int   `json:"data_shards"`
	FailureShards int   `json:"failure_shards"`
	DataBytes     int64 `json:"data_bytes"`
	FailureBytes  int64 `json:"failure_bytes"`
	Tokens        int64 `json:"tokens"`
	Trainable     int64 `json:"trainable_tokens"`
	// WALBytes is the size of wal/, which holds the samples of open shards.
	WALBytes int64 `json:"wal_bytes"`
	// Duplicates counts samples that came again and were refused; nil: not recorded.
	Duplicates *int64 `json:"duplicates_refused,omitempty"`
}

// BytesPerToken is over the data; 0 of no token.
func (s Storage) BytesPerToken() float64 {
	if s.Tokens == 0 {
		return 0
	}
	return float64(s.DataBytes) / float64(s.Tokens)
}

// TailBias compares the samples that were kept with those that the tail policy cut.
type TailBias struct {
	Kept TailSide `json:"kept"`
	Cut  TailSide `json:"cut"`
}

// A TailSide is the length and duration of one side.
type TailSide struct {
	Samples    int           `json:"samples"`
	Seconds    *Distribution `json:"seconds,omitempty"`
	Completion *Distribution `json:"completion_tokens,omitempty"`
}

// An Invocation is one process that collected, by its log.
type Invocation struct {
	Log     string    `json:"log"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"` // its last line
	// Seconds are from the one to the other, without the jumps of the clock.
	Seconds float64 `json:"seconds"`
	Resumed bool    `json:"resumed"`
	// Outcome and Exit are empty where the process did not end in order.
	Outcome string `json:"outcome,omitempty"`
	Exit    *int   `json:"exit,omitempty"`
}

// A ClockJump is a place of a log where the times of its lines do not go on: the clock
// was set, or the machine slept.
type ClockJump struct {
	Log string    `json:"log"` // of the line after it
	At  time.Time `json:"at"`  // by the clock after it
	// Seconds by which the clock went ahead, or back where that is negative.
	Seconds float64 `json:"seconds"`
}
