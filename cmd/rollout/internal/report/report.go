// Package report describes how a run went: the outcome of every sample, rewards, durations and
// the collector's decisions. [Read] builds a [Report] only from the files of a run, so it works
// on a run in progress and on a killed one. [Page] renders it.
//
//	run.json ──────────────► planned
//	_commits/ ─────────────► committed, bytes
//	data/, failures/ ──────► rewards, lengths, durations, classes   (no tokens are read)
//	logs/ ─────────────────► invocations, limits, retries, samples in flight, policy lags
//	journal/ ──────────────► attempts without an outcome
//	                │
//	                └─ Read ─► Report ─► report.json, and Page ─► report.html
//
// Every number was measured. A number that was not measured is nil or absent, and the page
// reports it as missing.
package report

import (
	"encoding/json"
	"time"
)

// Version is the version of report.json.
const Version = 1

// A Report is the content of report.json. Times are UTC, durations are seconds, lengths are tokens.
type Report struct {
	Version   int       `json:"version"`
	RunID     string    `json:"run_id"`
	CreatedAt time.Time `json:"created_at"` // time when the run was created
	WrittenAt time.Time `json:"written_at"` // time when this report was written
	Program   string    `json:"program"`    // version of rollout that wrote it
	// State is running (a process holds the run), complete (nothing remains) or incomplete.
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
	Tail       *TailBias  `json:"tail_bias,omitempty"` // nil: no sample was cut
	// Filtered counts the samples of Coverage.Filtered by keep_reason.
	Filtered map[string]int `json:"filtered_by,omitempty"`
	Lag      *Lag           `json:"policy_lag,omitempty"` // nil: the logs have none

	Invocations []Invocation `json:"invocations,omitempty"`
	// ClockJumps lists the first clock jumps in the logs. If there are any, the mean throughput is
	// over the time of the invocations.
	ClockJumps []ClockJump `json:"clock_jumps,omitempty"`
	// Problems lists data that could not be read. The numbers exclude that data.
	Problems []string `json:"problems,omitempty"`
	// Damage holds the Problems that report a damaged file.
	Damage []error `json:"-"`
	// Basis identifies the sources of the numbers about samples. Reports with equal Basis have
	// equal numbers. It is empty if the numbers depend on more than commits, or a source could not
	// be read.
	Basis string `json:"basis,omitempty"`
	// LastInvocation is the summary of the last process that ended in order.
	LastInvocation json.RawMessage `json:"last_invocation,omitempty"`
}

// Coverage counts samples. If Holds is true,
//
//	Planned == Committed + Filtered + Failed + Skipped + Remaining
type Coverage struct {
	Planned int `json:"planned"`
	// Committed counts the samples that are done and kept. Filtered counts the samples with
	// keep=false. All other numbers about samples with rows include both.
	Committed int `json:"committed"`
	Failed    int `json:"failed"`
	// Skipped counts the samples that were cut by the tail policy or at their task's deadline. Late
	// counts the samples cut at a deadline, and Unstarted the samples that never started.
	Skipped   int `json:"skipped"`
	Late      int `json:"late,omitempty"`
	Unstarted int `json:"unstarted"`
	Remaining int `json:"remaining"`
	// Durable is the part of Remaining that has ended and is only in the write-ahead log. Numbers
	// about samples with rows include it.
	Durable int `json:"durable"`
	// Holds is false if the folder has more samples than were planned.
	Holds    bool `json:"holds"`
	Filtered int  `json:"filtered"`
	// Empty is the part of Committed and Filtered without a row. Superseded counts failures that a
	// later success replaced.
	Empty      int `json:"empty"`
	Superseded int `json:"superseded"`
	// LostCalls counts single calls in failures/ whose sample is committed.
	LostCalls int `json:"lost_calls"`
}

// Failures groups the samples of Coverage.Failed.
type Failures struct {
	Classes []FailureClass `json:"classes,omitempty"` // most frequent first
	// Reasons counts quarantined samples and single calls by reason word.
	Reasons map[string]int `json:"reasons,omitempty"`
}

// A FailureClass is one class with an example.
type FailureClass struct {
	Class   string         `json:"class"`
	Samples int            `json:"samples"`
	Stages  map[string]int `json:"stages"`
	Example string         `json:"example"` // the error of one sample
	Advice  string         `json:"advice"`
}

// Rewards covers the samples with at least one row.
type Rewards struct {
	Scored   int           `json:"scored"`
	Unscored int           `json:"unscored"`
	All      *Distribution `json:"all,omitempty"`
	// ByAttempt groups rewards by the number of the attempt that counted.
	ByAttempt []AttemptReward `json:"by_attempt,omitempty"`
	// Pass is the lowest reward of a pass.
	Pass   float64 `json:"pass"`
	Passed int     `json:"passed"`
	// PassAtK is for k = 1, 2, 4, … while a group has k scored samples.
	PassAtK []PassAtK `json:"pass_at_k,omitempty"`
}

// An AttemptReward covers the samples whose attempt of that number counted.
type AttemptReward struct {
	Attempt int      `json:"attempt"`
	Samples int      `json:"samples"`
	Scored  int      `json:"scored"`
	Mean    *float64 `json:"mean,omitempty"`
}

// PassAtK is the mean over Groups of the unbiased estimate that at least one of k samples passes.
// The estimate is 1 - C(n-c, k)/C(n, k) for c passes among n scored samples. Groups with fewer than
// k scored samples are excluded.
type PassAtK struct {
	K      int     `json:"k"`
	Value  float64 `json:"value"`
	Groups int     `json:"groups"`
}

// Groups covers the groups of a run: the samples of one task each.
type Groups struct {
	// Groups counts the groups with at least one row. Whole counts the groups in which every sample
	// has a row.
	Groups int `json:"groups"`
	Whole  int `json:"whole"`
	// Scored counts the groups with at least two scored samples. ZeroVariance counts the scored
	// groups with equal rewards, which give no training signal. AllPass and NonePass are parts of
	// it.
	Scored       int `json:"scored"`
	ZeroVariance int `json:"zero_variance"`
	AllPass      int `json:"all_pass"`
	NonePass     int `json:"none_pass"`
}

// Lengths are in tokens.
type Lengths struct {
	// Prompt counts a row's tokens before the first sampled one. Sequence counts all tokens of a
	// row.
	Prompt   *Distribution `json:"prompt,omitempty"`
	Sequence *Distribution `json:"sequence,omitempty"`
	// Completion counts a sample's sampled tokens, as the server reports them. Calls counts its
	// model calls, and RowsPer its rows.
	Completion *Distribution `json:"completion,omitempty"`
	Calls      *Distribution `json:"calls,omitempty"`
	RowsPer    *Distribution `json:"rows_per_sample,omitempty"`
	Rows       int           `json:"rows"`
}

// Truncation counts samples, except Flags and the token counts.
type Truncation struct {
	Samples int `json:"samples"`
	// Truncated counts samples with a row whose end the policy did not choose. Cut counts the
	// samples with a row cut at tokens.max_row_tokens. Length counts the samples whose last output
	// ended at the engine's token limit. A sample can be both.
	Truncated int `json:"truncated"`
	Cut       int `json:"cut"`
	Length    int `json:"length"`
	// MaxSteps counts samples that used all their steps. Their rows are not truncated.
	MaxSteps int            `json:"max_steps"`
	Status   map[string]int `json:"status,omitempty"`
	Stop     map[string]int `json:"stop_reasons,omitempty"`
	Flags    map[string]int `json:"flags,omitempty"` // rows by flag
	// UnscoredTokens counts sampled tokens with mask 0: tokens without a usable log-probability,
	// and tokens that tokens.after_stop masks. TrimmedTokens counts tokens that were replaced.
	UnscoredTokens int64 `json:"unscored_tokens"`
	TrimmedTokens  int64 `json:"trimmed_tokens"`
}

// ends describes the samples whose end the policy did not choose, in one sentence per kind of end.
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

// Proof counts rows.
type Proof struct {
	Grades  map[string]int `json:"grades,omitempty"`
	Sources map[string]int `json:"prompt_sources,omitempty"`
	// Downgraded counts rows that are not exact because their reply was lost. It is set only in a
	// run whose received replies are exact.
	Downgraded int `json:"downgraded,omitempty"`
	// Versions is nil if no row has a policy version.
	Versions *Versions `json:"policy_versions,omitempty"`
}

// Time covers the samples with at least one row, except Failed.
type Time struct {
	Total   *Distribution `json:"total,omitempty"`
	Working *Distribution `json:"working,omitempty"` // excludes queueing and backoff
	Failed  *Distribution `json:"failed,omitempty"`  // total time of failed samples
	// First is the first start of a sample, and Last the last end.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

// A Series holds counts over time, in steps of Step seconds from Start. Tokens and Samples are the
// totals per step, for the samples that ended in it.
type Series struct {
	Start   time.Time `json:"start"`
	Step    float64   `json:"step"`
	Tokens  []float64 `json:"tokens"`
	Samples []float64 `json:"samples"`
	// TokensPerSecond is the mean from the first start to the last end, including pauses between
	// invocations. See Report.ClockJumps for the exception.
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// Controller describes the concurrency control, as the logs recorded it.
type Controller struct {
	Endpoints []EndpointLimit `json:"endpoints,omitempty"`
	Reasons   map[string]int  `json:"reasons,omitempty"`
	// Changes lists the newest changes. LeftOut counts older ones.
	Changes []LimitChange `json:"changes,omitempty"`
	LeftOut int           `json:"left_out,omitempty"`
	// InFlight is from the status lines.
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

// Retries counts attempts and retries.
type Retries struct {
	// Attempts counts the samples with rows and the failed samples by the number of the attempt
	// that counted.
	Attempts map[int]int `json:"attempts,omitempty"`
	// ByClass counts the logged retries by the class of the failure before them; nil: no log.
	// WaitSeconds is the total pause before them.
	ByClass     map[string]int `json:"by_class,omitempty"`
	Logged      int            `json:"logged"`
	WaitSeconds float64        `json:"wait_seconds"`
	// Open counts the attempts without an outcome: in progress, or their process died. Nil: no
	// journal.
	Open *int `json:"open,omitempty"`
}

// Slow is one of the slowest samples.
type Slow struct {
	Row        int     `json:"row"` // row number as in rollout inspect; -1: the sample failed; -2: the row is in no shard yet
	SampleKey  string  `json:"sample_key"`
	TaskID     string  `json:"task_id"`
	Index      int     `json:"sample_index"`
	Attempt    int     `json:"attempt"`
	Seconds    float64 `json:"seconds"`
	Working    float64 `json:"working_seconds"`
	Calls      int     `json:"calls"`
	Completion int64   `json:"completion_tokens"`
	Status     string  `json:"status"` // status of the sample, or the class of its failure
	AgentID    string  `json:"agent_id,omitempty"`
}

// Storage describes the files of the folder.
type Storage struct {
	Commits       int   `json:"commits"`
	DataShards    int   `json:"data_shards"`
	FailureShards int   `json:"failure_shards"`
	DataBytes     int64 `json:"data_bytes"`
	FailureBytes  int64 `json:"failure_bytes"`
	Tokens        int64 `json:"tokens"`
	Trainable     int64 `json:"trainable_tokens"`
	// WALBytes is the size of wal/, which has the samples of open shards.
	WALBytes int64 `json:"wal_bytes"`
	// Duplicates counts samples that were delivered twice and dropped; nil: not recorded.
	Duplicates *int64 `json:"duplicates_refused,omitempty"`
}

// BytesPerToken returns DataBytes per token, or 0 without tokens.
func (s Storage) BytesPerToken() float64 {
	if s.Tokens == 0 {
		return 0
	}
	return float64(s.DataBytes) / float64(s.Tokens)
}

// TailBias compares the kept samples with the samples that the tail policy cut.
type TailBias struct {
	Kept TailSide `json:"kept"`
	Cut  TailSide `json:"cut"`
}

// A TailSide has the lengths and durations of one side.
type TailSide struct {
	Samples    int           `json:"samples"`
	Seconds    *Distribution `json:"seconds,omitempty"`
	Completion *Distribution `json:"completion_tokens,omitempty"`
}

// An Invocation is one collecting process, as its log describes it.
type Invocation struct {
	Log     string    `json:"log"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"` // time of its last line
	// Seconds is the time from Started to Ended without clock jumps.
	Seconds float64 `json:"seconds"`
	Resumed bool    `json:"resumed"`
	// Outcome and Exit are empty if the process did not end in order.
	Outcome string `json:"outcome,omitempty"`
	Exit    *int   `json:"exit,omitempty"`
}

// A ClockJump is a discontinuity in the times of a log: the clock was set, or the machine slept.
type ClockJump struct {
	Log string    `json:"log"` // the log with the line after the jump
	At  time.Time `json:"at"`  // time of the clock after the jump
	// Seconds is the size of the jump; negative if the clock went back.
	Seconds float64 `json:"seconds"`
}
