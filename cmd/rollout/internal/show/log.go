package show

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Log records the events of a run as JSON lines, written by log/slog. The log contains no
// secrets, and no text from a person or a model. It therefore omits prompts and answers. It also
// omits the text of any error in which a server can quote a prompt or an answer.
type Log struct {
	*slog.Logger
	file *os.File // nil if the log discards its entries
}

// DiscardLog returns a log that discards everything.
func DiscardLog() *Log { return &Log{Logger: slog.New(slog.DiscardHandler)} }

// OpenLog opens a log in a run's folder. As a precaution, the log masks the given secrets in every
// string.
func OpenLog(dir, name string, mode fs.FileMode, secrets []string) (*Log, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := runfolder.MkdirAll(filepath.Dir(path), mode); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}
	var pairs []string
	for _, s := range secrets {
		if len(s) >= shortestSecret {
			pairs = append(pairs, s, config.Hidden)
		}
	}
	hide := strings.NewReplacer(pairs...)
	replace := func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(hide.Replace(v))
		case error:
			a.Value = slog.StringValue(hide.Replace(v.Error()))
		}
		return a
	}
	return &Log{Logger: slog.New(slog.NewJSONHandler(termsafe.NewWriter(f), &slog.HandlerOptions{ReplaceAttr: replace})), file: f}, nil
}

// shortestSecret is the minimum length of a secret that is masked. A shorter secret could also be
// part of an ordinary word.
const shortestSecret = 5

// Close closes the log's file.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// statusEvery is the time between two status entries.
const statusEvery = 10 * time.Second

// Follow logs the state of the run every [statusEvery] until ctx is done.
func (l *Log) Follow(ctx context.Context, stats func() collector.Stats) {
	for wait.For(ctx, statusEvery) {
		l.Status(stats())
	}
}

// Status logs the state of the run.
func (l *Log) Status(s collector.Stats) {
	limit := 0
	for _, e := range s.Endpoints {
		limit += e.Limit
	}
	attrs := []any{
		"in_flight", s.InFlight, "limit", limit, "committed", s.Committed, "failed", s.Failed, "skipped", s.Skipped, "remaining", s.Remaining,
		"accepted", s.Accepted, "attempts", s.Attempts, "retries", s.Retries, "sampled_tokens", s.Sampled, "trained_tokens", s.Trained,
	}
	if g := groupsOf(s.Pace); g != nil { // the report reads the lags from the log, because rows do not contain them
		attrs = append(attrs, "filtered", s.Filtered, "groups_begun", g.Begun, "groups_whole", g.Whole, "groups_ahead", g.Ahead,
			"version", s.Pace.Version, "held", s.Pace.Held.String(), "lag", g.Lag)
	}
	l.Info("status", attrs...)
}

// LimitChanged logs a change of an endpoint's concurrency limit.
func (l *Log) LimitChanged(endpoint string, from, to int, reason string) {
	l.Info("limit changed", "endpoint", endpoint, "from", from, "to", to, "reason", reason)
}

func (l *Log) failed(s *tokenize.Sample) {
	if len(s.Rows) > 0 || len(s.Failures) == 0 {
		return
	}
	f := &s.Failures[0]
	l.Warn("sample failed", "sample_key", s.Key, "attempt", s.Attempt, "class", f.Class, "stage", f.Stage, "reason", f.Reason, "agent_id", s.AgentID)
}

// Tail logs how many samples the tail policy kept and cut, with their mean durations and lengths.
func (l *Log) Tail(t *tailSummary) {
	if t == nil {
		return
	}
	l.Info("tail", "policy", t.Policy, "kept", t.Kept.Samples, "kept_mean_s", t.Kept.MeanSeconds, "kept_mean_tokens", t.Kept.MeanTokens,
		"cut", t.Cut.Samples, "cut_mean_s", t.Cut.MeanSeconds, "cut_mean_tokens", t.Cut.MeanTokens, "unstarted", t.Unstarted)
}

// Ended logs the end of the run, as the last line. The level is Info if the run succeeded. It is
// Warn if the user interrupted the run, or if some samples failed but no more than allowed.
// Otherwise it is Error.
func (l *Log) Ended(outcome string, err error) {
	code := exit.Code(err)
	if s, ok := errors.AsType[exit.SilentError](err); ok {
		code = int(s)
	}
	level := slog.LevelError
	switch code {
	case exit.OK:
		level = slog.LevelInfo
	case exit.Interrupted, exit.Failures:
		level = slog.LevelWarn
	}
	attrs := []any{"outcome", outcome, "exit", code}
	if class := collector.Classify(err); err != nil && (class != collector.ClassInternal && class != collector.ClassCancelled || code == exit.Internal) {
		attrs = withError(err, attrs...)
	}
	l.Log(context.Background(), level, "end", attrs...)
}

// withError adds the error's class to attrs. It also adds the error's text if [collector.Redacted]
// returns one.
func withError(err error, attrs ...any) []any {
	attrs = append(attrs, "class", collector.Classify(err).String())
	if text := collector.Redacted(err); text != "" {
		attrs = append(attrs, "error", text)
	}
	return attrs
}
