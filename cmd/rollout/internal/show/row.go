package show

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A RowView configures [WriteRow] and [WriteFailure].
type RowView struct {
	Number int
	Paint  Painter
	Spell  model.Speller
	Whole  bool // also show the middle of long spans
	Width  int
	// Unshown maps a sample key to the counts of the sample's calls that are missing from the
	// replies.
	Unshown map[string]tokenize.Unshown
}

// unshown describes the calls of a sample that are missing from the replies, or returns "".
func (v RowView) unshown(key string) string {
	n, ok := v.Unshown[key]
	if !ok {
		return ""
	}
	return n.String() + " (the tap saw these calls, but no reply contains them)"
}

func (v RowView) facts(b *bytes.Buffer) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		termsafe.Fprintf(b, "%s %s\n", v.Paint.dim(fmt.Sprintf("%-12s", name)), fmt.Sprintf(format, args...))
	}
}

// edgeTokens is the number of tokens shown at each end of a long context span.
const edgeTokens = 24

// WriteRow writes one row: first its properties, then its spans with their tokens.
func WriteRow(w io.Writer, r *sink.StoredRow, v RowView) error {
	var b bytes.Buffer
	fact := v.facts(&b)
	fact("row", "%d: task %s, sample %d of %d, attempt %d, segment %d of %d%s",
		v.Number, termsafe.Text(r.TaskID, 60), r.SampleIndex, r.GroupSize, r.Attempt, r.SegmentIndex+1, r.SegmentCount, ChainText(r, ", chain "))
	if r.ParentChain != nil && r.ParentStep != nil {
		fact("started by", "chain %d, step %d", *r.ParentChain, *r.ParentStep)
	}
	fact("key", "%s", r.SampleKey)
	fact("tokens", "%d: prompt %d, trained %d (%s), unscored %d, trimmed %d", len(r.InputIDs), r.PromptLength,
		Trained(r.LossMask), format.Percent(int64(Trained(r.LossMask)), int64(len(r.InputIDs))), r.Unscored, r.Trimmed)
	fact("grade", "%s, prompts from %s", r.Verification, r.PromptSource)
	fact("status", "%s (%s)%s", r.Status, r.StopReason, map[bool]string{true: ", truncated"}[r.Truncated])
	fact("reward", "%s", Reward(r.Reward))
	if r.RewardDetails != nil {
		fact("", "%s", termsafe.Text(*r.RewardDetails, v.Width))
	}
	fact("model", "%s, agent %s", r.Model, r.AgentID)
	if len(r.Flags) > 0 {
		fact("flags", "%s", List(r.Flags))
	}
	if text := v.unshown(r.SampleKey); text != "" {
		fact("unshown", "%s", text)
	}
	if r.Keep != nil {
		fact("keep", "%t (%s)", *r.Keep, keepReason(r))
	}
	showDivergence(fact, r.Divergence, v)
	b.WriteByte('\n')
	for k, role := range r.TurnRoles {
		if k+1 >= len(r.TurnOffsets) {
			break // the row lacks offsets; "rollout verify" reports this error
		}
		showSpan(&b, r, v, tokenize.Role(role), int(r.TurnOffsets[k]), int(r.TurnOffsets[k+1]))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ChainText returns before, the number and the kind of the row's chain. It returns "" for chain 0,
// the only chain of most samples.
func ChainText(r *sink.StoredRow, before string) string {
	if r.Chain == 0 {
		return ""
	}
	return fmt.Sprintf("%s%d (%s)", before, r.Chain, r.ChainKind)
}

// A storedDivergence is the decoded divergence column. It contains the point at which the row
// forked, and the points at which the row was realigned.
type storedDivergence struct {
	divergedAt
	Realigned []divergedAt
}

type divergedAt struct {
	Call, Offset int
	Kind         string
	Row, Prompt  []int32
}

// ReadDivergence decodes the divergence column. It returns the zero value if text is nil.
func ReadDivergence(text *string) (d storedDivergence, err error) {
	if text != nil {
		err = json.Unmarshal([]byte(*text), &d)
	}
	return d, err
}

// showDivergence shows why a row does not continue the previous row, and where the row was
// realigned.
func showDivergence(fact func(name, format string, args ...any), text *string, v RowView) {
	d, err := ReadDivergence(text)
	if err != nil {
		fact("divergence", "%s", termsafe.Text(*text, v.Width))
		return
	}
	spell := func(ids []int32) string {
		words := make([]string, len(ids))
		for i, id := range ids {
			words[i] = v.Spell(id)
		}
		return strings.Join(words, " ")
	}
	sides := func(at divergedAt, row string) {
		if len(at.Row)+len(at.Prompt) > 0 {
			fact("  "+row, "%s", cmp.Or(spell(at.Row), "ends here"))
			fact("  prompt", "%s", cmp.Or(spell(at.Prompt), "ends here"))
		}
	}
	if d.Kind != "" {
		fact("divergence", "the prompt of call %d diverged from the previous row at token %d: %s", d.Call, d.Offset, divergenceText(d.Kind))
		sides(d.divergedAt, "row")
	}
	for _, at := range d.Realigned {
		fact("realigned", "the prompt of call %d diverged from this row at token %d: %s", at.Call, at.Offset, divergenceText(at.Kind))
		sides(at, "sampled")
	}
}

func divergenceText(kind string) string {
	switch kind {
	case "prompt":
		return "in the prompt itself (prompt)"
	case "context":
		return "in the text between two outputs (context)"
	case "earlier_output":
		return "in an output before the last one (earlier_output)"
	case "last_output":
		return "in the last output (last_output)"
	case "proper_prefix":
		return "the prompt ends inside the row or at the end of the row (proper_prefix)"
	case "after_lost":
		return "the previous call is unknown (after_lost)"
	}
	return kind
}

// WriteFailure writes one failure: first its properties, then its remaining tokens.
func WriteFailure(w io.Writer, f *sink.StoredFailure, v RowView) error {
	var b bytes.Buffer
	fact := v.facts(&b)
	fact("failure", "%d: task %s, sample %d of %d, attempt %d", v.Number, termsafe.Text(f.TaskID, 60), f.SampleIndex, f.GroupSize, f.Attempt)
	fact("key", "%s", f.SampleKey)
	what := "the whole sample"
	if f.Call >= 0 {
		what = fmt.Sprintf("call %d; the other calls of the sample have rows", f.Call)
	}
	fact("lost", "%s", what)
	fact("class", "%s in %s%s", f.Class, f.Stage, map[bool]string{true: ", " + f.Reason}[f.Reason != ""])
	// Print each part on its own line, because an error can list everything that was tried.
	for i, part := range strings.Split(termsafe.Text(f.Error, ErrorWidth(true)), "; ") {
		fact(map[bool]string{true: "error"}[i == 0], "%s", part)
	}
	fact("status", "%s (%s), %d steps; the server counted %d prompt and %d completion tokens",
		f.Status, cmp.Or(f.StopReason, "-"), f.Steps, f.PromptTokens, f.CompletionTokens)
	fact("model", "%s, agent %s", cmp.Or(f.Model, "-"), cmp.Or(f.AgentID, "-"))
	if text := v.unshown(f.SampleKey); text != "" {
		fact("unshown", "%s", text)
	}
	fact("sampled", "%d tokens", len(f.OutputIDs))
	v.tokens(&b, len(f.OutputIDs), !v.Whole, func(i int) (string, termsafe.Own) {
		text := v.Spell(f.OutputIDs[i])
		return text, termsafe.Own(termsafe.Text(text, termsafe.MaxText))
	})
	_, err := w.Write(b.Bytes())
	return err
}

// showSpan writes the heading of span [from, to) and its tokens.
func showSpan(b *bytes.Buffer, r *sink.StoredRow, v RowView, role tokenize.Role, from, to int) {
	if from < 0 || from > to || to > len(r.InputIDs) || to > len(r.LossMask) || to > len(r.Logprobs) {
		return
	}
	head := fmt.Sprintf("%s [%d, %d) %d tokens", role, from, to, to-from)
	if n := Trained(r.LossMask[from:to]); n > 0 {
		sum, least := 0.0, 0.0
		for i := from; i < to; i++ {
			if r.LossMask[i] == 1 {
				sum += float64(r.Logprobs[i])
				least = math.Min(least, float64(r.Logprobs[i]))
			}
		}
		head += fmt.Sprintf(", %d trained, logprob mean %.3f, min %.3f", n, sum/float64(n), least)
	}
	b.WriteString(string(v.Paint.bold(head)))
	b.WriteByte('\n')

	sampled := role == tokenize.RoleAssistant
	v.tokens(b, to-from, !v.Whole && !sampled, func(i int) (string, termsafe.Own) {
		text := v.Spell(r.InputIDs[from+i])
		switch {
		case r.LossMask[from+i] == 1:
			return text, v.Paint.logprob(r.Logprobs[from+i], text)
		case sampled && bool(v.Paint):
			return text, v.Paint.Code("4;2", text)
		case sampled:
			return "(" + text + ")", termsafe.Own("(" + termsafe.Text(text, termsafe.MaxText) + ")")
		}
		return text, v.Paint.dim(text)
	})
	b.WriteByte('\n')
}

// tokens writes n tokens, wrapped to v.Width. If elide is set, it skips the middle of a long list.
func (v RowView) tokens(b *bytes.Buffer, n int, elide bool, token func(i int) (plain string, painted termsafe.Own)) {
	column := 0
	put := func(plain string, painted termsafe.Own) {
		if column > 0 && column+1+utf8.RuneCountInString(plain) > v.Width-2 {
			b.WriteByte('\n')
			column = 0
		}
		if column == 0 {
			b.WriteByte(' ')
		}
		b.WriteString(" " + string(painted))
		column += 1 + utf8.RuneCountInString(plain)
	}
	for i := 0; i < n; i++ {
		if skipped := n - 2*edgeTokens; elide && n > 3*edgeTokens && i == edgeTokens {
			text := fmt.Sprintf("… %d more …", skipped)
			put(text, v.Paint.dim(text))
			i += skipped
		}
		put(token(i))
	}
	if column > 0 {
		b.WriteByte('\n')
	}
}

// logprob colors a token by its log-probability, from green (certain) to red (unlikely). The colors
// have a medium brightness and little saturation: whole paragraphs have them, on a dark or a light
// background.
func (p Painter) logprob(lp float32, s string) termsafe.Own {
	shades := [...]struct {
		above float32
		code  string
	}{{-0.05, "38;5;71"}, {-0.25, "38;5;107"}, {-0.7, "38;5;143"}, {-1.6, "38;5;179"}, {-3, "38;5;173"}}
	for _, shade := range shades {
		if lp >= shade.above {
			return p.Code(shade.code, s)
		}
	}
	return p.Code("38;5;167", s)
}

// ColumnsOf returns the values of a stored row by column name. A NaN becomes nil, because JSON has
// no NaN.
func ColumnsOf(row any) map[string]any {
	v := reflect.ValueOf(row).Elem()
	out := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("parquet"), ",")
		switch f := v.Field(i).Interface().(type) {
		case []float32:
			list := make([]*float32, len(f))
			for j := range f {
				if !math.IsNaN(float64(f[j])) {
					list[j] = &f[j]
				}
			}
			out[name] = list
		default:
			out[name] = f
		}
	}
	return out
}

// Trained returns the number of trained tokens in a loss mask.
func Trained(mask []int8) (n int) {
	for _, m := range mask {
		n += int(m)
	}
	return n
}

// ShortKey shortens a sample key: it keeps the index and the first digits of the group. A short key
// is enough to distinguish samples on the screen.
func ShortKey(key string) string {
	group, index, ok := strings.Cut(key, "-")
	if !ok || len(group) < 8 {
		return termsafe.Text(key, 16)
	}
	return group[:8] + "-" + index
}

// Reward formats a reward, or returns "-" for nil.
func Reward(r *float64) string {
	if r == nil {
		return "-"
	}
	return strconv.FormatFloat(*r, 'g', 6, 64)
}

// List joins words with commas, or returns "-" if there are none.
func List(words []string) string { return cmp.Or(strings.Join(words, ","), "-") }

// RowFlags lists the flags of a row. If the row is filtered, it adds keep=false and the reason.
func RowFlags(r *sink.StoredRow) string {
	flags := r.Flags
	if r.Keep != nil && !*r.Keep {
		flags = append(slices.Clone(flags), "keep=false("+keepReason(r)+")")
	}
	return List(flags)
}

func keepReason(r *sink.StoredRow) string {
	if r.KeepReason == nil {
		return "no reason given"
	}
	return termsafe.Text(*r.KeepReason, 60)
}

// ErrorWidth returns the maximum number of columns in which an error is shown.
func ErrorWidth(whole bool) int {
	if whole {
		return 1000
	}
	return 100
}
