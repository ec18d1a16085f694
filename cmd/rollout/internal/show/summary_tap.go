package show

import (
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/tap"
)

// tapCounts counts the calls that the taps saw during the run.
type tapCounts struct {
	Calls   int64 `json:"calls"`
	Claimed int64 `json:"claimed"` // calls that belong to samples
	// Retries counts calls that are missing from the replies and whose prompt equals the prompt of
	// a claimed call. Unread counts calls without token ids, such as a server's summaries. Others
	// counts calls from failed rollouts and from other programs.
	Retries int64 `json:"retries"`
	Unread  int64 `json:"unread"`
	Others  int64 `json:"others"`
	Evicted int64 `json:"evicted"`
	// Broken counts calls that failed at the engine or whose reply was interrupted. Unshown counts
	// the samples' calls that are missing from the replies, by kind: retry, failed, cut, summary.
	Broken  int64            `json:"broken"`
	Unshown map[string]int64 `json:"unshown,omitempty"`
	// Refused counts the samples' calls that were not found in a spool, by reason.
	Refused map[string]int64 `json:"refused,omitempty"`
	// Missing counts missing spool data by reason: damaged, torn, dropped, lost, orphans, removed.
	// ReadErrors counts failed reads. ReadError is the latest error, or empty if a later read
	// succeeded.
	Missing    map[string]int64 `json:"missing,omitempty"`
	ReadErrors int64            `json:"read_errors,omitempty"`
	ReadError  string           `json:"read_error,omitempty"`
}

func tapOf(s *tap.IndexStats) *tapCounts {
	if s == nil {
		return nil
	}
	t := &tapCounts{
		Calls: s.Calls, Claimed: s.Claimed, Retries: s.Retries, Unread: s.Unread, Others: s.Others, Evicted: s.Evicted, Broken: s.Broken,
		Unshown: s.Unshown, Refused: s.Refused, Missing: withoutZeros(missing(&s.Read)), ReadErrors: s.Read.Errors,
	}
	if s.Read.Err != nil {
		t.ReadError = s.Read.Err.Error()
	}
	return t
}

func (t *tapCounts) addLines(line func(name, format string, args ...any)) {
	if t == nil {
		return
	}
	parts := []string{fmt.Sprintf("saw %s calls, %s of them from samples", format.Count(t.Calls), format.Count(t.Claimed))}
	for _, more := range []struct {
		n    int64
		what string
	}{{t.Retries, "repeated"}, {t.Unread, "without token ids (such as summaries)"}, {t.Broken, "failed or incomplete"}, {t.Others, "from failed rollouts or other programs"}, {t.Evicted, "dropped to save memory"}} {
		if more.n > 0 {
			parts = append(parts, format.Count(more.n)+" "+more.what)
		}
	}
	line("tap", "%s", strings.Join(parts, ", "))
	if len(t.Unshown) > 0 {
		line("", "sample calls missing from the server's answers: %s", Counted(t.Unshown))
	}
	if len(t.Refused) > 0 {
		line("", "sample calls not found in the spools: %s", Counted(t.Refused))
	}
	for _, text := range t.troubles() {
		line("", "%s", text)
	}
}

// troubles describes the missing spool data and how to fix each cause.
func (t *tapCounts) troubles() (all []string) {
	add := func(n int64, what, todo string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%s %s: %s", format.Count(n), what, todo))
		}
	}
	m := t.Missing
	add(m["dropped"], "calls passed through a tap but were not stored", "the tap's disk is full or too slow; see the tap's log and rollout_tap_spool_dropped_total")
	add(m["torn"], "segments of a spool are incomplete, so calls might be missing", "stop the tap only with SIGTERM, and check whether it ran out of memory or disk space")
	add(m["damaged"], "places in a spool are damaged", "check the disk; the intact data around the damage was read")
	add(m["lost"]+m["orphans"], "calls in damaged places cannot be read", "their prompts come from other sources; start the tap with a new --spool folder")
	add(m["removed"], "segments of a spool were removed before they were read", "raise the tap's --spool-bytes or --spool-age, or collect while the tap runs")
	if t.ReadError != "" {
		all = append(all, "a spool cannot be read: "+t.ReadError+"; check that rollout tap is running there")
	} else {
		add(t.ReadErrors, "reads of a spool failed but succeeded later", "the tap or the network was temporarily down")
	}
	return all
}

// hint explains why the taps saw no calls from the run, or returns "".
func (t *tapCounts) hint() string {
	switch {
	case t == nil || t.Claimed > 0:
		return ""
	case t.Calls == 0:
		return "the tap saw no calls: check that the base URL of the server's provider points to the tap; for details, run rollout doctor with the same settings"
	case t.Refused["unseen"] > 0:
		return "the tap saw no calls from this run: check that the base URL of the server's provider points to the tap, and that the clocks of the tap and this machine agree"
	}
	return ""
}
