package tokenize_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/tokenize"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/align")

// TestVectors runs the cases of testdata/align. A file has the sections
//
//	config   lines of a word and a value: drift, realign_max, max_row, vocab, tokenizer, stop;
//	         or literal, mask_after_stop
//	calls    one call per line: prompt ids, output ids, and other fields
//	reply    instead of calls: the bytes of a reply
//	counts   the server's sums
//	want     the outcome
//
// and want has the sampled ids in brackets:
//
//	row 0/1 exact turns
//	  prompt(1 2) [10 11] tool(3) [20 ~21]
//
// Here ~ marks a token without a usable log-probability. Calls without logprobs have -id/8.
func TestVectors(t *testing.T) {
	t.Parallel()
	for name, vector := range readVectors(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := vector.run(align)
			if got == vector.want {
				return
			}
			if *update {
				vector.rewrite(t, got)
				return
			}
			t.Errorf("\n got:\n%s\nwant:\n%s", got, vector.want)
		})
	}
}

// faults are errors that an aligner could have: it aligns other calls than it got.
var faults = []struct {
	name  string
	plant func(cfg *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call
	// config tells that only the vectors have a configuration in which the fault shows.
	config bool
}{
	{"context one token short", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		for k := range calls {
			if c := &calls[k]; len(c.PromptIDs) > 1 && k%2 == 1 {
				c.PromptIDs = c.PromptIDs[:len(c.PromptIDs)-1]
			}
		}
		return calls
	}, false},
	{"output glued on, whatever the prompt says", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		for k := 1; k < len(calls); k++ {
			before, c := &calls[k-1], &calls[k]
			seen := slices.Concat(before.PromptIDs, before.OutputIDs)
			if before.PromptIDs != nil && len(c.PromptIDs) > len(seen) {
				c.PromptIDs = append(seen, c.PromptIDs[len(seen):]...)
			}
		}
		return calls
	}, false},
	{"a row across a lost call", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		return slices.DeleteFunc(calls, func(c tokenize.Call) bool { return c.Grade == tokenize.Quarantined })
	}, false},
	{"log-probabilities of the call before", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		for k := len(calls) - 1; k > 0; k-- {
			if len(calls[k].Logprobs) == len(calls[k-1].Logprobs) {
				calls[k].Logprobs = calls[k-1].Logprobs
			}
		}
		return calls
	}, false},
	{"log-probabilities slide over the missing one", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		for k, c := range calls {
			kept := slices.DeleteFunc(slices.Clone(c.Logprobs), func(v float32) bool { return v != v })
			for len(kept) < len(c.Logprobs) {
				kept = append(kept, -1)
			}
			calls[k].Logprobs = kept
		}
		return calls
	}, true},
	{"the last token left off", func(_ *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		for k := range calls {
			if c := &calls[k]; len(c.OutputIDs) > 1 && len(c.Logprobs) == len(c.OutputIDs) {
				c.OutputIDs, c.Logprobs = c.OutputIDs[:len(c.OutputIDs)-1], c.Logprobs[:len(c.Logprobs)-1]
			}
		}
		return calls
	}, false},
	{"realign one token further", func(cfg *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		cfg.RealignMax++
		return calls
	}, true},
	{"a row one token longer", func(cfg *tokenize.AlignConfig, calls []tokenize.Call) []tokenize.Call {
		if cfg.MaxRowTokens > 0 {
			cfg.MaxRowTokens++
		}
		return calls
	}, true},
}

// TestFaultsAreCaught checks that some vector detects each fault, and that checkChain does on some chain.
func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	vectors := slices.Collect(maps.Values(readVectors(t)))
	for _, f := range faults {
		faulty := func(cfg tokenize.AlignConfig, calls []tokenize.Call) ([]tokenize.Row, tokenize.Alignment, error) {
			planted := f.plant(&cfg, slices.Clone(calls))
			return align(cfg, planted)
		}
		if !slices.ContainsFunc(vectors, func(v vector) bool { return v.run(faulty) != v.want }) {
			t.Errorf("no vector catches: %s", f.name)
		}
		caught := f.config
		for n := 0; n < 500 && !caught; n++ {
			calls := chain(rand.New(rand.NewPCG(1, uint64(n))))
			rows, sum, err := faulty(tokenize.AlignConfig{}, calls)
			caught = err != nil || checkChain(calls, rows, sum.LostCalls, 0) != nil
		}
		if !caught {
			t.Errorf("no chain catches: %s", f.name)
		}
	}
}

type aligner func(tokenize.AlignConfig, []tokenize.Call) ([]tokenize.Row, tokenize.Alignment, error)

func align(cfg tokenize.AlignConfig, calls []tokenize.Call) ([]tokenize.Row, tokenize.Alignment, error) {
	return tokenize.NewAligner(cfg).Align(calls)
}

type vector struct {
	file    string
	archive *txtar.Archive
	cfg     tokenize.AlignConfig
	calls   []tokenize.Call
	err     error // from decoding a reply
	counts  *tokenize.Counts
	want    string
}

func readVectors(t *testing.T) map[string]vector {
	t.Helper()
	files, err := filepath.Glob("../testdata/align/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	vectors := map[string]vector{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v := vector{file: file, archive: archive}
		literal := false
		for _, f := range archive.Files {
			text := string(f.Data)
			switch f.Name {
			case "config":
				v.cfg, literal = parseConfig(t, text)
			case "calls":
				for line := range strings.Lines(text) {
					v.calls = append(v.calls, parseCall(t, line, literal))
				}
			case "reply":
				v.calls, v.err = tokenize.CallsFromTurns(nil, mustDecode(t, f.Data).Turns)
			case "counts":
				v.counts = new(tokenize.Counts)
				if _, err := fmt.Sscanf(text, "prompt %d completion %d steps %d", &v.counts.PromptTokens, &v.counts.CompletionTokens, &v.counts.Steps); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
			case "want":
				v.want = text
			default:
				t.Fatalf("%s: unknown section %q", file, f.Name)
			}
		}
		vectors[strings.TrimSuffix(filepath.Base(file), ".txtar")] = v
	}
	return vectors
}

func parseConfig(t *testing.T, text string) (cfg tokenize.AlignConfig, literal bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch word {
		case "drift":
			err = cfg.Drift.UnmarshalText([]byte(value))
		case "realign_max":
			cfg.RealignMax, err = strconv.Atoi(value)
		case "max_row":
			cfg.MaxRowTokens, err = strconv.Atoi(value)
		case "vocab":
			cfg.VocabSize, err = strconv.Atoi(value)
		case "tokenizer":
			cfg.TokenizerSize, err = strconv.Atoi(value)
		case "stop":
			for word := range strings.FieldsSeq(value) {
				id, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				cfg.StopIDs = append(cfg.StopIDs, int32(id))
			}
		case "mask_after_stop":
			cfg.MaskAfterStop = true
		case "literal":
			literal = true
		default:
			t.Fatalf("unknown setting %q", word)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return cfg, literal
}

func parseCall(t *testing.T, line string, literal bool) tokenize.Call {
	t.Helper()
	c := tokenize.Call{Source: tokenize.SourceTurns, Version: -1, After: tokenize.RoleUser}
	if literal {
		c.Source, c.Grade = tokenize.SourceLiteral, tokenize.Unverified
	}
	notNumber := func(word string) bool {
		_, err := strconv.ParseFloat(word, 64)
		return err != nil && word != "null"
	}
	for words := strings.Fields(line); len(words) > 0; {
		word, rest := words[0], words[1:]
		n := slices.IndexFunc(append(rest, "end"), notNumber)
		args := rest[:n]
		words = rest[n:]
		text := ""
		if n == 0 && len(rest) > 0 {
			text = rest[0]
		}
		var ids []int32
		for _, a := range args {
			v, _ := strconv.Atoi(a)
			ids = append(ids, int32(v))
		}
		var err error
		switch word {
		case "prompt":
			c.PromptIDs = ids
		case "context":
			c.Context = ids
		case "output":
			c.OutputIDs = ids
			for _, id := range ids {
				c.Logprobs = append(c.Logprobs, -float32(id)/8)
			}
		case "logprobs":
			for j, a := range args {
				v, err := strconv.ParseFloat(a, 32)
				if err != nil {
					v = math.NaN()
				}
				c.Logprobs[j] = float32(v)
			}
		case "version":
			c.Version = ids[0]
		case "versions":
			c.Versions = ids
		case "stopped":
			c.StopID = &ids[0]
		case "counted":
			c.Source, c.Grade = tokenize.SourceStored, tokenize.CountVerified
		case "after":
			err, words = c.After.UnmarshalText([]byte(text)), rest[1:]
		case "finish":
			c.FinishReason, words = text, rest[1:]
		case "chain":
			c.Chain, words = ids[0], rest[2:]
			err = c.ChainKind.UnmarshalText([]byte(rest[1]))
		case "lost":
			c.Grade, words = tokenize.Quarantined, rest[1:]
			err = c.Reason.UnmarshalText([]byte(text))
		default:
			t.Fatalf("unknown word %q in %q", word, line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run aligns the calls and renders the outcome.
func (v vector) run(align aligner) string {
	if v.err != nil {
		return v.err.Error() + "\n"
	}
	var s strings.Builder
	if v.counts != nil {
		if err := tokenize.CheckCounts(v.calls, *v.counts); err != nil {
			return err.Error() + "\n"
		}
		s.WriteString("counts agree\n")
	}
	rows, sum, err := align(v.cfg, v.calls)
	if err != nil {
		return err.Error() + "\n"
	}
	fmt.Fprintf(&s, "sampled %d = trained %d + unscored %d + trimmed %d + cut %d + lost %d\n", sum.Sampled, sum.Trained, sum.Unscored, sum.Trimmed, sum.Cut, sum.Lost)
	for _, n := range []struct {
		name string
		v    int
	}{{"forks", sum.Forks}, {"realigned", sum.Realigned}, {"empty rows", sum.EmptyRows}} {
		if n.v != 0 {
			fmt.Fprintf(&s, "%s %d\n", n.name, n.v)
		}
	}
	if len(sum.LostCalls)+len(sum.CutCalls) > 0 {
		fmt.Fprintf(&s, "lost calls %v cut calls %v\n", sum.LostCalls, sum.CutCalls)
	}
	for i := range rows {
		v.row(&s, &rows[i])
	}
	return s.String()
}

func (v vector) row(s *strings.Builder, r *tokenize.Row) {
	fmt.Fprintf(s, "row %d/%d %s %s", r.SegmentIndex, r.SegmentCount, r.Grade, r.Source)
	if r.Chain != 0 || r.ChainKind != 0 {
		fmt.Fprintf(s, " chain %d %s", r.Chain, r.ChainKind)
	}
	if r.Flags != 0 {
		fmt.Fprintf(s, " flags %s", r.Flags)
	}
	if r.Truncated {
		s.WriteString(" truncated")
	}
	if r.Versions != nil {
		fmt.Fprintf(s, " versions %v", r.Versions)
	}
	s.WriteString("\n ")
	k := int(r.FirstCall)
	for i, role := range r.TurnRoles {
		lo, hi := int(r.TurnOffsets[i]), int(r.TurnOffsets[i+1])
		var ids []string
		for j := lo; j < hi; j++ {
			id := strconv.Itoa(int(r.InputIDs[j]))
			if tokenize.Role(role) == tokenize.RoleAssistant && r.LossMask[j] == 0 {
				id = "~" + id
			}
			if r.LossMask[j] == 1 && tokenize.Role(role) != tokenize.RoleAssistant {
				id = "!" + id // never in a want section
			}
			ids = append(ids, id)
		}
		if tokenize.Role(role) != tokenize.RoleAssistant {
			fmt.Fprintf(s, " %s(%s)", tokenize.Role(role), strings.Join(ids, " "))
			continue
		}
		for k < len(v.calls) && len(v.calls[k].OutputIDs) == 0 {
			k++
		}
		fmt.Fprintf(s, " [%s]", strings.Join(ids, " "))
		if k < len(v.calls) {
			for j := lo; j < hi && j-lo < len(v.calls[k].Logprobs); j++ {
				if r.LossMask[j] == 1 && r.Logprobs[j] != v.calls[k].Logprobs[j-lo] {
					fmt.Fprintf(s, " wrong log-probability at %d", j)
				}
			}
		}
		k++
	}
	if d := r.AppendDivergence(nil); len(d) > 0 {
		fmt.Fprintf(s, "\n  because %s", d)
	}
	if err := r.Check(v.cfg.VocabSize); err != nil {
		fmt.Fprintf(s, "\n  %v", err)
	}
	s.WriteString("\n")
}

func (v vector) rewrite(t *testing.T, want string) {
	t.Helper()
	var files []txtar.File
	for _, f := range v.archive.Files {
		if f.Name != "want" {
			files = append(files, f)
		}
	}
	v.archive.Files = append(files, txtar.File{Name: "want", Data: []byte(want)})
	if err := os.WriteFile(v.file, txtar.Format(v.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
