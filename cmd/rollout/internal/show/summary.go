package show

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Summary describes the end of a run. It is stored in report.json, written as the last JSON line,
// and formatted as text.
type Summary struct {
	RunID   string `json:"run_id"`
	Dir     string `json:"dir"`
	Outcome string `json:"outcome"` // finished, interrupted, stopped, retried
	Error   string `json:"error,omitempty"`

	// Planned is the sum of the next five fields. Committed counts kept samples. Filtered counts
	// samples whose rows have keep=false.
	Planned   int `json:"planned"`
	Committed int `json:"committed"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	Remaining int `json:"remaining"`
	Filtered  int `json:"filtered"`
	// Durable counts the samples in Remaining that have finished but are only in the write-ahead
	// log, because the storage failed or their group is incomplete. The next invocation commits
	// them.
	Durable int `json:"durable,omitempty"`

	// Earlier counts the samples from earlier processes. All fields below cover only this
	// invocation. Invocation is its number within the run. Recovered counts the samples that were
	// found in the write-ahead log. OpenFound counts the attempts that were found in flight.
	// Reattached counts the attempts that were taken over, and Gone the attempts that were lost.
	Earlier    earlier `json:"earlier"`
	Invocation int     `json:"invocation"`
	Recovered  int64   `json:"recovered"`
	OpenFound  int     `json:"open_found"`
	Reattached int     `json:"reattached"`
	Gone       int     `json:"gone"`

	FailedByClass map[string]int `json:"failed_by_class"`
	Attempts      int            `json:"attempts"`
	Retries       int            `json:"retries"`
	LostCalls     int            `json:"lost_calls"`
	// Remade counts rollouts that were lost to infrastructure failures and collected again. The key
	// is the failure class. If a reply was lost and the server's record of the reply is incomplete,
	// the key is the missing part instead. Kept counts the rollouts that became data. Downgraded
	// counts rows whose grade is lower because their reply was lost.
	Remade     map[string]RolloutCount `json:"remade"`
	Kept       RolloutCount            `json:"kept"`
	Downgraded int                     `json:"downgraded_rows"`
	AgentsLeft int                     `json:"agents_left"` // agents that could not be removed
	BadTasks   int                     `json:"bad_tasks"`

	Rows  int `json:"rows"`
	Empty int `json:"empty"` // samples without rows
	// CutCalls and CutTokens count the calls and tokens that tokens.max_row_tokens cut off. No
	// other field includes these calls and tokens. EmptyRows counts the rows that were dropped
	// because they have no token to train on.
	CutCalls  int   `json:"cut_calls"`
	CutTokens int64 `json:"cut_tokens"`
	EmptyRows int   `json:"empty_rows"`

	sums // aggregates of the samples

	Sampled int64 `json:"sampled"`
	Trained int64 `json:"trained"`
	// Balance contains the terms of Sampled. It is nil if all sampled tokens are trained.
	// UntrainedCalls counts the calls that were left untrained on purpose (see tokenize.Untrained).
	Balance        *tokenize.Balance `json:"balance,omitempty"`
	UntrainedCalls int               `json:"untrained_calls,omitempty"`
	// TrainedShare is Trained divided by Sampled. ActionRatio is Trained divided by Tokens.
	TrainedShare float64 `json:"trained_share"`
	ActionRatio  float64 `json:"action_ratio"`
	// Versions counts the sampled tokens in rows by the source of their policy version: trace, tap,
	// url, flag, set-version, or unknown. VersionNotes explains why versions are unknown.
	Versions     map[string]int64 `json:"versions"`
	VersionNotes []string         `json:"version_notes,omitempty"`
	Prompts      promptCost       `json:"prompts"`
	// Tap contains the counts from the taps. It is nil if the run has no tap.
	Tap *tapCounts `json:"tap,omitempty"`

	// Groups is nil if the run does not commit whole groups.
	Groups *groupSummary `json:"groups,omitempty"`

	// Unscored counts the run's committed samples that have rows but no reward. Like the report, it
	// includes samples from earlier processes.
	Unscored int `json:"unscored"`
	inRun    int // committed samples of the run that have rows; 0 if unknown
	// ScorerFailures counts the samples of this process whose scorer failed.
	ScorerFailures int `json:"scorer_failures"`

	Shards  int64   `json:"shards"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Store counts the requests of a worker to a bucket. It is nil without a bucket.
	Store *storeCost `json:"store,omitempty"`

	// Tail shows how the tail policy biased the data. It is nil if the policy cut nothing.
	Tail *tailSummary `json:"tail,omitempty"`

	Hints []string `json:"hints,omitempty"`
}

type earlier struct {
	Committed int `json:"committed"`
	Filtered  int `json:"filtered,omitempty"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
}

type promptCost struct {
	Requests int64 `json:"requests"`
	// BySource counts requests by the kind of data they fetched: steps, messages, traces, agents,
	// conversations.
	BySource  map[string]int64 `json:"by_source"`
	Seconds   float64          `json:"seconds"` // summed over samples
	MillisPer float64          `json:"ms_per_request"`
}

// versionUnknown is the key for sampled tokens without a policy version.
const versionUnknown = "unknown"

// versionCounts counts sampled tokens by the source of their policy version.
func versionCounts(y collector.Yield) map[string]int64 {
	return map[string]int64{
		tokenize.VersionTrace.String(): y.VersionTrace, tokenize.VersionTap.String(): y.VersionTap, tokenize.VersionURL.String(): y.VersionURL,
		tokenize.VersionFlag.String(): y.VersionFlag, tokenize.VersionSet.String(): y.VersionSet, versionUnknown: y.VersionNone,
	}
}

func withoutZeros(counts map[string]int64) map[string]int64 {
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts
}

func costOf(s prompt.Stats) promptCost {
	c := promptCost{Requests: s.Requests.Total(), BySource: s.Requests.BySource(), Seconds: s.Spent.Seconds()}
	if c.Requests > 0 {
		c.MillisPer = 1000 * c.Seconds / float64(c.Requests)
	}
	return c
}

// Summarize builds a Summary from the statistics of the collector, the sink, the prompt source and
// the tally.
func Summarize(s collector.Stats, k sink.Stats, ps prompt.Stats, t *Tally, took time.Duration) *Summary {
	of := t.result()
	sum := &Summary{
		Outcome: "finished",
		Planned: s.Planned, Committed: s.Committed, Filtered: s.Filtered, Failed: s.Failed, Skipped: s.Skipped, Remaining: s.Remaining,
		Earlier: earlier(s.Earlier), Reattached: s.Reattached, Gone: s.Gone,
		FailedByClass: classMap(s.ByClass), Attempts: s.Attempts, Retries: s.Retries, LostCalls: s.LostCalls, AgentsLeft: s.CloseFailures,
		Remade: remadeMap(s.Remade), Kept: countRollouts(s.Kept), Downgraded: s.Downgraded,
		Rows: s.Rows, Empty: s.Empty, CutCalls: s.CutCalls, CutTokens: s.Cut, EmptyRows: s.EmptyRows,
		sums: of, Sampled: s.Sampled, Trained: s.Trained,
		TrainedShare: format.Share(s.Trained, s.Sampled), ActionRatio: format.Share(s.Trained, of.Tokens),
		Versions: withoutZeros(versionCounts(s.Yield)),
		Groups:   groupsOf(s.Pace),
		Prompts:  costOf(ps),
		Tap:      tapOf(ps.Tap),
		Unscored: s.Unscored, ScorerFailures: s.ScorerFailures,
		Shards: k.Shards, Bytes: k.Bytes, Seconds: took.Seconds(),
	}
	sum.UntrainedCalls = s.UntrainedCalls
	if b := s.Balance(); b.Sampled != b.Trained {
		sum.Balance = &b
	}
	return sum
}

// AddUnscored sets how many samples of the run have a reward and how many do not. Without this
// call, Unscored covers only this process and includes uncommitted samples.
func (s *Summary) AddUnscored(scored, unscored int) {
	s.Unscored, s.inRun = unscored, scored+unscored
}

// AddLater adds a hint if samples of the run were collected after the scores set that readers use.
func (s *Summary) AddLater(set string, samples int) {
	if samples > 0 {
		s.Hints = append(s.Hints, fmt.Sprintf("%d samples are not in scores set %s, so readers see no reward: to score all samples, use rollout rescore %s again", samples, set, format.Shell(s.Dir)))
	}
}

// A storeCost counts requests to a bucket, including repeated requests.
type storeCost struct {
	Requests    int64            `json:"requests"`
	ByKind      map[string]int64 `json:"by_kind"`                    // put, get, head, list, delete, other
	PerThousand float64          `json:"per_1000_samples,omitempty"` // absent if no sample has ended
	// Checks counts the requests that checked the bucket before the run. Requests excludes them.
	Checks int64 `json:"checks"`
}

// AddStore adds the numbers of requests to a bucket during the run, and before it. It adds nothing if
// there was no request.
func (s *Summary) AddStore(during, before map[string]int64) {
	c := storeCost{ByKind: withoutZeros(during)}
	for _, n := range during {
		c.Requests += n
	}
	for _, n := range before {
		c.Checks += n
	}
	if ended := s.ended() - s.Earlier.ended(); ended > 0 {
		c.PerThousand = 1000 * float64(c.Requests) / float64(ended)
	}
	if c.Checks > 0 {
		s.Store = &c
	}
}

// text returns the summary as text. In the first block, the counts below "planned" add up to the
// planned number.
func (s *Summary) text() string {
	var b bytes.Buffer
	line := func(name, format string, args ...any) {
		termsafe.Fprintf(&b, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("planned", "%7d", s.Planned)
	line("committed", "%7d", s.Committed)
	if s.Filtered > 0 {
		line("filtered", "%7d   with keep=false", s.Filtered)
	}
	failed := ""
	if s.Failed > 0 {
		failed = "   " + classes(s.FailedByClass)
	}
	line("failed", "%7d%s", s.Failed, failed)
	skipped := ""
	if s.Skipped > 0 {
		skipped = "   cut by the tail policy"
		if s.Groups != nil && s.Tail == nil {
			skipped = "   not needed, or cut at the deadline of their task"
		}
	}
	line("skipped", "%7d%s", s.Skipped, skipped)
	durable := ""
	if s.Durable > 0 {
		durable = fmt.Sprintf("   %d of them have finished and are in the write-ahead log", s.Durable)
	}
	line("remaining", "%7d%s", s.Remaining, durable)
	b.WriteByte('\n')

	switch {
	case s.Invocation > 1 && s.Attempts == 0 && s.Shards == 0:
		line("resumed", "%s; invocation %d had nothing to do", s.resumed(), s.Invocation)
		return b.String()
	case s.Invocation > 1:
		line("resumed", "%s; the numbers below cover only invocation %d", s.resumed(), s.Invocation)
	}

	line("rows", "%s with %s tokens; %.2f rows per sample, at most %d; %d forks, %d samples without a row",
		format.Count(int64(s.Rows)), format.Count(s.Tokens), s.RowsPerSample, s.MostRows, s.Forks, s.Empty)
	line("sampled", "%s tokens, %s trained (%s of sampled tokens, %s of row tokens)",
		format.Count(s.Sampled), format.Count(s.Trained), format.Percent(s.Trained, s.Sampled), format.Percent(s.Trained, s.Tokens))
	if s.Balance != nil {
		line("", "%s", format.Balance(s.Balance))
	}
	if s.UntrainedCalls > 0 {
		line("untrained", "calls: %s; rollout failures --all lists them", Counted(s.Untrained))
	}
	if left := s.leftOut(); left != "" {
		line("omitted", "%s", left)
	}
	if ends := s.Ends.text(); ends != "" {
		line("ends", "%s", ends)
	}
	if g := s.Groups; g != nil {
		line("groups", "%s", g)
		if lags := g.lags(); lags != "" {
			line("lag", "%s, in policy versions", lags)
		}
	}
	line("grades", "%s", Counted(s.Grades))
	if s.Downgraded > 0 {
		line("", "%d rows are not exact because their replies were lost and the server's record has no prompts", s.Downgraded)
	}
	line("sources", "%s", Counted(s.Sources))
	if len(s.Versions) > 1 || s.Versions[versionUnknown] == 0 && len(s.Versions) > 0 || len(s.VersionNotes) > 0 {
		line("versions", "%s, in sampled tokens", Counted(s.Versions))
	}
	if len(s.Reasons) > 0 {
		line("quarantine", "%s", Counted(s.Reasons))
	}
	if s.Prompts.Requests > 0 {
		line("prompts", "%s extra requests, %s of sample time, %.3g ms each",
			format.Count(s.Prompts.Requests), format.Duration(seconds(s.Prompts.Seconds)), s.Prompts.MillisPer)
		line("", "requests by source: %s", Counted(s.Prompts.BySource))
	}
	s.Tap.addLines(line)
	if s.MeanReward != nil || s.Unscored > 0 {
		mean := "-"
		if s.MeanReward != nil {
			mean = fmt.Sprintf("%.4g", *s.MeanReward)
		}
		if s.Invocation > 1 && s.inRun > 0 {
			line("reward", "mean %s over %d samples; %d of the run's %d samples could not be scored", mean, s.Scored, s.Unscored, s.inRun)
		} else {
			line("reward", "mean %s over %d samples; %d could not be scored", mean, s.Scored, s.Unscored)
		}
	}
	perToken := ""
	if s.Tokens > 0 && s.Shards > 0 {
		perToken = fmt.Sprintf(", %.2f bytes per token", float64(s.Bytes)/float64(s.Tokens))
	}
	line("shards", "%d with %s%s", s.Shards, format.Bytes(s.Bytes), perToken)
	if c := s.Store; c != nil {
		rate := ""
		if c.PerThousand > 0 {
			rate = ", " + format.Rate(c.PerThousand) + " per 1,000 samples"
		}
		line("store", "%s requests%s: %s; and %s before, to check the bucket", format.Count(c.Requests), rate, Counted(c.ByKind), format.Count(c.Checks))
	}
	line("time", "%s, %s samples/s, %s sampled tokens/s, %d attempts, %d of them retries", format.Duration(seconds(s.Seconds)),
		format.Rate(format.PerSecond(s.ended()-s.Earlier.ended(), s.Seconds)), format.Rate(format.PerSecond(int(s.Sampled), s.Seconds)), s.Attempts, s.Retries)
	if len(s.Remade) > 0 {
		line("remade", "%s", s.remade())
	}
	if t := s.Tail; t != nil {
		line("tail", "%s cut samples at the end of the run, so the data are biased toward short samples", t.Policy)
		line("  kept", "%s", t.Kept)
		line("  cut", "%s until they were cut; %d more never started", t.Cut, t.Unstarted)
	}
	if s.LostCalls > 0 {
		line("lost", "%d calls are quarantined in failures/; the other calls of their samples are in data/", s.LostCalls)
	}
	if s.AgentsLeft > 0 {
		line("agents", "%d could not be removed: remove them with rollout clean %s", s.AgentsLeft, format.Shell(s.Dir))
	}
	return b.String()
}

// ended counts the samples that are neither skipped nor remaining.
func (s *Summary) ended() int { return s.Committed + s.Filtered + s.Failed }

func (e earlier) ended() int { return e.Committed + e.Filtered + e.Failed }

func (s *Summary) resumed() string {
	before := s.Earlier.ended()
	text := fmt.Sprintf("%s samples done before and %s now", format.Count(int64(before)), format.Count(int64(max(0, s.ended()-before))))
	if s.Recovered > 0 {
		text += fmt.Sprintf("; %d of the earlier samples were in the write-ahead log", s.Recovered)
	}
	if s.OpenFound > 0 {
		text += fmt.Sprintf("; %d of %d attempts in flight reattached", s.Reattached, s.OpenFound)
		if s.Gone > 0 {
			text += fmt.Sprintf(", %d lost", s.Gone)
		}
	}
	return text
}

// leftOut describes the sampled tokens that are in neither a row nor a failure, or returns "".
func (s *Summary) leftOut() string {
	var parts []string
	if s.CutCalls > 0 {
		parts = append(parts, fmt.Sprintf("%d calls with %s sampled tokens beyond tokens.max_row_tokens", s.CutCalls, format.Count(s.CutTokens)))
	}
	if s.EmptyRows > 0 {
		parts = append(parts, fmt.Sprintf("%d rows without a trainable token", s.EmptyRows))
	}
	return strings.Join(parts, ", ")
}

// Counted formats counts, such as "turns 12, stored 3".
func Counted[N int | int64](by map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, by[name]))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// A RolloutCount is a number of rollouts and their mean duration.
type RolloutCount struct {
	N     int     `json:"n"`
	Timed int     `json:"timed"` // rollouts with a known duration
	Mean  float64 `json:"mean_seconds"`
}

func countRollouts(r collector.RolloutCount) RolloutCount {
	return RolloutCount{N: r.N, Timed: r.Timed, Mean: r.Mean().Seconds()}
}

func remadeMap(by map[string]collector.RolloutCount) map[string]RolloutCount {
	out := map[string]RolloutCount{}
	for reason, r := range by {
		out[reason] = countRollouts(r)
	}
	return out
}

// remade describes the rollouts that were lost to infrastructure failures. It compares their
// durations with the durations of the kept rollouts, because longer rollouts are lost more often.
func (s *Summary) remade() string {
	n, timed, sum := 0, 0, 0.0
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(s.Remade)) {
		r := s.Remade[reason]
		n, timed, sum = n+r.N, timed+r.Timed, sum+r.Mean*float64(r.Timed)
		part := fmt.Sprintf("%s %d", reason, r.N)
		if r.Timed > 0 {
			part += " (mean " + format.Duration(seconds(r.Mean)) + ")"
		}
		parts = append(parts, part)
	}
	text := fmt.Sprintf("%d rollouts in progress were lost and collected again: %s", n, strings.Join(parts, ", "))
	if timed > 0 && s.Kept.Timed > 0 {
		text += fmt.Sprintf("; on average, lost rollouts took %s and kept rollouts took %s", format.Duration(seconds(sum/float64(timed))), format.Duration(seconds(s.Kept.Mean)))
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A tailSummary compares the samples that the tail policy kept with the samples that it cut. The
// duration and length of a cut sample are measured at the cut.
type tailSummary struct {
	Policy string     `json:"policy"`
	Kept   tailLength `json:"kept"`
	Cut    tailLength `json:"cut"`
	// Unstarted counts the samples that never started.
	Unstarted int `json:"unstarted"`
}

// A tailLength contains the durations and lengths of samples. Known counts the samples whose length
// is known. MeanTokens and MedianTokens cover only these samples.
type tailLength struct {
	Samples       int     `json:"samples"`
	MeanSeconds   float64 `json:"mean_seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	Known         int     `json:"known"`
	MeanTokens    float64 `json:"mean_tokens"`
	MedianTokens  float64 `json:"median_tokens"`
}

// AddTail adds the effect of the tail policy. It adds nothing if the policy cut no sample, or if
// all samples had already ended.
func (s *Summary) AddTail(policy string, unstarted int, t collector.TailStats) {
	if !t.Cut || t.Censored.N == 0 && unstarted == 0 {
		return
	}
	length := func(m collector.Measures) tailLength {
		return tailLength{m.N, m.MeanDuration.Seconds(), m.P50Duration.Seconds(), m.Known, m.MeanSampled, m.P50Sampled}
	}
	s.Tail = &tailSummary{Policy: policy, Kept: length(t.Kept), Cut: length(t.Censored), Unstarted: unstarted}
}

func (l tailLength) String() string {
	text := fmt.Sprintf("%s samples, %s on average (median %s)", format.Count(int64(l.Samples)), format.Duration(seconds(l.MeanSeconds)), format.Duration(seconds(l.MedianSeconds)))
	if l.Known > 0 {
		text += fmt.Sprintf(", %s sampled tokens (median %s)", format.Count(int64(l.MeanTokens)), format.Count(int64(l.MedianTokens)))
		if l.Known < l.Samples {
			text += fmt.Sprintf(" for the %d samples with a known length", l.Known)
		}
	}
	return text
}
