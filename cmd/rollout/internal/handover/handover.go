package handover

import (
	"fmt"
	"io"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/sink"
)

// A Format is the name of a format.
type Format string

// The formats.
const (
	ATIF           Format = "atif"
	HFTraces       Format = "hf-traces"
	OpenAIMessages Format = "openai-messages"
	Slime          Format = "slime"
	Tinker         Format = "tinker"
)

// Formats returns all formats.
func Formats() []Format { return []Format{ATIF, HFTraces, OpenAIMessages, Slime, Tinker} }

// Text reports whether the format contains text. The other formats are only for training. They contain only rows
// with a reward that the filter kept.
func (f Format) Text() bool { return f == ATIF || f == HFTraces || f == OpenAIMessages }

// Left counts what a format leaves out.
type Left struct {
	Failures int64 // rows of failures
	Empty    int64 // samples that have neither rows nor failures
	Unscored int64 // rows without a reward
	Filtered int64 // rows with keep=false
	Short    int64 // rows without a token before the first token to train on
	Textless int64 // samples whose messages are missing or have an unknown form
	Roleless int64 // messages whose role is not known
}

// Complaints returns one line per reason for which something is left out.
func (l *Left) Complaints(f Format) (lines []string) {
	add := func(n int64, what, why string) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("not exported: %s (%s)", format.Plural(n, what), why))
		}
	}
	add(l.Failures, "failure row", "--to jsonl --kind all exports failures")
	add(l.Empty, "sample", "without a row; --to jsonl --kind all exports such samples")
	add(l.Unscored, "row", "without a reward, so there is no advantage")
	add(l.Filtered, "row", "keep=false: the filter of the run excluded them from training")
	add(l.Short, "row", "without a token before the first token to train on")
	add(l.Textless, "sample", "its messages are not stored or have an unknown form; with --tokenizer, the text comes from the tokens")
	if l.Roleless > 0 {
		role := decode.Unknown
		if f == ATIF {
			role = decode.User
		}
		lines = append(lines, fmt.Sprintf("%s with the role %s: no mark of the chat template begins their text", format.Plural(l.Roleless, "message"), role))
	}
	return lines
}

// Options are the inputs of a Writer.
type Options struct {
	// Decoder decodes tokens. If it is nil, the text comes from the column messages.
	Decoder *decode.Decoder
	// Program is the version of this program.
	Program string
	// Rewards contains the rewards of all groups, for the advantages of slime and tinker; see Rewards.Add.
	Rewards Rewards
}

// A Writer writes rows in a format. The rows of a sample must be adjacent and in order. A Writer is not safe
// for concurrent use.
type Writer interface {
	// Write writes a row. It reports whether the format contains the row.
	Write(r *sink.StoredRow) (bool, error)
	// End writes what follows the last row.
	End() error
	// Close releases the Writer. It must be called once, also after an error.
	Close() error
}

// NewWriter returns a Writer of a format that is one file. The writer w should be buffered.
func NewWriter(f Format, w io.Writer, o Options, left *Left) (Writer, error) {
	switch f {
	case ATIF:
		return &atifWriter{w: w, options: o, left: left}, nil
	case OpenAIMessages:
		return &messagesWriter{w: w, options: o, left: left}, nil
	case Tinker:
		return &tinkerWriter{w: w, rewards: o.Rewards, left: left}, nil
	case Slime:
		return newSlime(w, o.Rewards, left)
	case HFTraces: // a folder: see NewTraces
	}
	return nil, fmt.Errorf("internal error: %s is not a file", f)
}

// trainable reports whether a training format writes the row, and counts it otherwise.
func (l *Left) trainable(r *sink.StoredRow) bool {
	switch {
	case r.Keep != nil && !*r.Keep:
		l.Filtered++
	case r.Reward == nil:
		l.Unscored++
	default:
		return true
	}
	return false
}

// flat is a Writer without an end.
type flat struct{}

func (flat) End() error   { return nil }
func (flat) Close() error { return nil }

// name returns the id of a row: the id of its rollout, and its number if the sample has several rows.
func name(r *sink.StoredRow) string {
	if r.SegmentCount < 2 {
		return r.RolloutID
	}
	return fmt.Sprintf("%s/%d", strings.TrimSuffix(r.RolloutID, "/"), r.SegmentIndex)
}
