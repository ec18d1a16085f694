package handover

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestMessages checks the conversations of a forked sample, and that all lines have the same members.
func TestMessages(t *testing.T) {
	t.Parallel()
	for name, samples := range shapes(t) {
		rows := storedOf(t, samples)
		text, left := exported(t, OpenAIMessages, rows)
		if *left != (Left{}) {
			t.Errorf("%s: %+v", name, *left)
		}
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			var got map[string]any
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("%s: %v of %s", name, err, line)
			}
			r := &rows[i].Rows[0]
			if r.Reward != nil && !strings.Contains(line, fmt.Sprintf(`,"reward":%.1f,`, *r.Reward)) {
				t.Errorf("%s: the reward is not a float: %s", name, line)
			}
			if got["sample_key"] != r.SampleKey || got["truncated"] != r.Truncated || got["segment_index"] != float64(r.SegmentIndex) || (got["reward"] == nil) != (r.Reward == nil) {
				t.Errorf("%s: %s", name, line)
			}
		}
		if name != "forks" {
			continue
		}
		want := `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Add 2 and 3."},` +
			`{"role":"assistant","content":"I add.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\": 2}"}}],"weight":0},` +
			`{"role":"tool","content":"5","tool_call_id":"call_1"},{"role":"assistant","content":"It is 5.","reasoning_content":"Hm."}],"reward":`
		at := slices.IndexFunc(rows, func(s *sink.StoredSample) bool { return s.Rows[0].SegmentIndex == 1 })
		if line := strings.Split(text, "\n")[at]; !strings.HasPrefix(line, want) {
			t.Errorf("%s\nwant %s", line, want)
		}
	}
}

// TestStoredMessages checks that a sample without a tokenizer becomes one conversation, from its stored messages.
func TestStoredMessages(t *testing.T) {
	t.Parallel()
	text := `[{"role":"user","content":"Hi."},{"role":"assistant","content":"Yo."}]`
	samples := shapes(t)["forks"]
	samples[0].Messages, samples[1].Messages, samples[2].Messages = &text, new(`[5]`), nil
	var out strings.Builder
	left := &Left{}
	w := &messagesWriter{w: &out, left: left}
	for _, s := range storedOf(t, samples[:3]) {
		if _, err := w.Write(&s.Rows[0]); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"messages":[{"role":"user","content":"Hi."},{"role":"assistant","content":"Yo."}],"reward":`
	if strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "segment_index") || left.Textless != 2 {
		t.Errorf("%s, %+v", out.String(), *left)
	}
}

// TestTraces checks the files of sessions, and that a key cannot lead out of the folder.
func TestTraces(t *testing.T) {
	t.Parallel()
	samples := shapes(t)["forks"]
	samples[1].Key = "../../escape"
	dir := t.TempDir()
	w := NewTraces(dir, 0o640, Options{Decoder: decoderOf(t)}, &Left{})
	rows := storedOf(t, samples)
	for _, s := range rows {
		if _, err := w.Write(&s.Rows[0]); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "??", "*.jsonl"))
	if err != nil || len(files) != len(rows) {
		t.Fatalf("%d files, want %d: %v, %v", len(files), len(rows), files, err)
	}
	at := slices.IndexFunc(rows, func(s *sink.StoredSample) bool { return s.Rows[0].SegmentIndex == 1 })
	c := conversation{row: &rows[at].Rows[0]}
	body, err := os.ReadFile(filepath.Join(dir, c.path()))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(body), "\n")
	if !strings.HasPrefix(lines[0], `{"type":"session","harness":"rollout","id":"`+name(c.row)+`","name":"`+c.row.TaskID+`","reward":`) {
		t.Error(lines[0])
	}
	want := []string{
		`{"type":"message","message":{"role":"system","content":"Be brief."}}`,
		`{"type":"message","message":{"role":"user","content":"Add 2 and 3."}}`,
		`{"type":"message","message":{"role":"assistant","content":"I add.","toolCalls":[{"id":"call_1","function":{"name":"add","arguments":"{\"a\": 2}"}}],"model":"sglang/test"}}`,
		`{"type":"message","message":{"role":"tool","content":"5","toolCallId":"call_1"}}`,
		`{"type":"message","message":{"role":"assistant","content":"It is 5.","reasoningContent":"Hm.","model":"sglang/test"}}`, "",
	}
	if !reflect.DeepEqual(lines[1:], want) {
		t.Errorf("%q", lines)
	}
}

// TestTinker checks the positions of every list, and the advantages of a group.
func TestTinker(t *testing.T) {
	t.Parallel()
	for name, samples := range shapes(t) {
		keep := false
		samples[len(samples)-1].Rows = slices.Clone(samples[len(samples)-1].Rows)
		rows := storedOf(t, samples)
		rows[len(rows)-1].Rows[0].Keep = &keep
		text, left := exported(t, Tinker, rows)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		sums, n := map[string]float64{}, map[string]float64{}
		for _, s := range rows {
			if r := &s.Rows[0]; r.Reward != nil && r.Keep == nil && r.SegmentIndex == 0 {
				sums[r.GroupID] += *r.Reward
				n[r.GroupID]++
			}
		}
		at := 0
		for _, s := range rows {
			r := &s.Rows[0]
			if r.Reward == nil || r.Keep != nil {
				continue
			}
			type tensor struct {
				Data  []float64 `json:"data"`
				Shape []int     `json:"shape"`
			}
			var got struct {
				Datum struct {
					Input struct {
						Chunks []struct {
							Tokens []int32 `json:"tokens"`
						} `json:"chunks"`
					} `json:"model_input"`
					Loss map[string]tensor `json:"loss_fn_inputs"`
				} `json:"datum"`
				Key string `json:"sample_key"`
			}
			if err := json.Unmarshal([]byte(lines[at]), &got); err != nil {
				t.Fatal(err)
			}
			at++
			T := len(r.InputIDs)
			if got.Key != r.SampleKey || !reflect.DeepEqual(got.Datum.Input.Chunks[0].Tokens, r.InputIDs[:T-1]) {
				t.Fatalf("%s: %s", name, lines[at-1])
			}
			for k, v := range got.Datum.Loss {
				if len(v.Data) != T-1 || v.Shape[0] != T-1 {
					t.Errorf("%s: %s has %d values and shape %v", name, k, len(v.Data), v.Shape)
				}
			}
			for i := 1; i < T; i++ {
				advantage := float64(float32(*r.Reward-sums[r.GroupID]/n[r.GroupID])) * float64(r.LossMask[i])
				if l := got.Datum.Loss; l["target_tokens"].Data[i-1] != float64(r.InputIDs[i]) || float32(l["logprobs"].Data[i-1]) != r.Logprobs[i] || l["advantages"].Data[i-1] != advantage {
					t.Fatalf("%s: token %d: %v, %v, %v", name, i, l["target_tokens"].Data[i-1], l["logprobs"].Data[i-1], l["advantages"].Data[i-1])
				}
			}
		}
		if at != len(lines) || left.Filtered != 1 || left.Unscored != int64(len(rows)-1-at) {
			t.Errorf("%s: %d lines, want %d; %+v", name, len(lines), at, *left)
		}
	}
}

// TestSlimeOrder checks that the groups of the file are contiguous, whatever the order of the rows is, and that
// the archive has the parts of torch.save.
func TestSlimeOrder(t *testing.T) {
	t.Parallel()
	rows := storedOf(t, slices.Concat(shapes(t)["plain"], shapes(t)["forks"]))
	slices.SortStableFunc(rows, func(a, b *sink.StoredSample) int { return int(a.Rows[0].SampleIndex - b.Rows[0].SampleIndex) })
	text, left := exported(t, Slime, rows)
	z, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r) // checks the checksum
		if err != nil {
			t.Fatal(err)
		}
		parts[f.Name] = string(body)
		if f.Method != zip.Store || f.Flags&8 != 0 {
			t.Errorf("%s: method %d, flags %#x", f.Name, f.Method, f.Flags)
		}
	}
	if len(parts) != 3 || parts["rollout/version"] != "3\n" || parts["rollout/byteorder"] != "little" {
		t.Errorf("%d parts", len(parts))
	}
	var groups []string
	for rest := parts["rollout/data.pkl"]; ; {
		_, after, ok := strings.Cut(rest, "group_idX")
		if !ok {
			break
		}
		groups, rest = append(groups, after[4:4+int(after[0])]), after
	}
	if len(groups) != len(rows) {
		t.Errorf("%d samples, want %d", len(groups), len(rows))
	}
	if unique := slices.Compact(slices.Clone(groups)); len(unique) != len(slices.Compact(slices.Sorted(slices.Values(unique)))) {
		t.Errorf("groups are not contiguous: %q", groups)
	}
	if *left != (Left{}) {
		t.Errorf("%+v", *left)
	}
}

// TestComplaints checks that everything that is left out is reported once.
func TestComplaints(t *testing.T) {
	t.Parallel()
	all := Left{1, 1, 1, 1, 1, 1, 1}
	if got := all.Complaints(Slime); len(got) != 7 {
		t.Errorf("%q", got)
	}
	if got := new(Left).Complaints(Slime); got != nil {
		t.Errorf("%q", got)
	}
}
