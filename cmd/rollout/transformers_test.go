package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// printsRoles returns a folder with the Qwen3 tokenizer and a changed chat template that prints the
// role of a message directly, like the template of Kimi-K2. Releases before 5.22.2 render it as
// MessageRole.user, later ones as user.
func printsRoles(t *testing.T) string {
	t.Helper()
	dir, qwen := t.TempDir(), filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")
	for _, name := range []string{"tokenizer.json.zst", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(qwen, name))
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte("+ message.role +"), []byte("~ message.role ~"))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// oldServer returns a simulated server that counts tokens by the rules before 5.22.2, which print
// the names of the roles.
func oldServer(t *testing.T, dir string) string {
	t.Helper()
	tok, err := model.LoadTokenizer("dir", dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	counts := map[string]int{} // recorded count → count by the old rules
	var was, is int            // sums of the current send; sends come one at a time
	role := regexp.MustCompile(`<\|im_start\|>(user|assistant)\n`)
	sim := newSim(t, lettasim.Config{Prompt: func(recorded []int32, _ lettasim.Face) []int32 {
		text, err := tok.AppendText(nil, recorded, bpe.DecodeOptions{})
		if err != nil {
			t.Error(err)
		}
		body, opened := strings.CutSuffix(string(text), "<|im_start|>assistant\n") // this text is from the template
		if !opened {
			t.Errorf("a recorded prompt ends with %q", text[len(text)-40:])
		}
		// Tool results are in the user's turn, with text from the template.
		body = role.ReplaceAllString(body, "<|im_start|>MessageRole.$1\n")
		body = strings.ReplaceAll(body, "<|im_start|>MessageRole.user\n<tool_response>", "<|im_start|>user\n<tool_response>")
		ids, err := tok.AppendTokens(nil, body+"<|im_start|>assistant\n")
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		was, is = was+len(recorded), is+len(ids)
		counts[strconv.Itoa(len(recorded))], counts[strconv.Itoa(was)] = len(ids), is
		return recorded
	}})
	counted := regexp.MustCompile(`"prompt_tokens": ?([0-9]+)`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			mu.Lock()
			was, is = 0, 0
			mu.Unlock()
		}
		rec := httptest.NewRecorder()
		sim.ServeHTTP(rec, r)
		body := counted.ReplaceAllStringFunc(rec.Body.String(), func(s string) string {
			mu.Lock()
			defer mu.Unlock()
			if n, ok := counts[counted.FindStringSubmatch(s)[1]]; ok {
				return `"prompt_tokens":` + strconv.Itoa(n)
			}
			return s
		})
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.WriteHeader(rec.Code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// If the server's release of transformers differs from tokens.transformers, no wrong row is
// written. The preflight and doctor name the right value, and with it there are rows.
func TestTransformersRelease(t *testing.T) {
	t.Parallel()
	dir := printsRoles(t)
	for _, tt := range []struct{ name, url, wrong, right, says string }{
		{"an old server", oldServer(t, dir), "5.23", "4.57", "the server renders like transformers 4.57, 5.0, 5.21, "},
		{"a new server", serveSim(t, newSim(t, lettasim.Config{})), "4.57", "5.22.2", "the server renders like transformers 5.22.2, 5.23, "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "run")
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"tool","prompt":"What is 2 + 3? Use the tool."}`+"\n"))
			args := []string{"--server", tt.url, "--model", simModel, "--tokenizer", dir, "--tasks", tasks, "--out", out, "--transformers"}
			verb := func(name string, more ...string) []string { return append(append([]string{name}, args...), more...) }

			r := mustRun(t, exit.Unusable, verb("doctor", tt.wrong)...)
			if !strings.Contains(r.stdout, tt.says+"but tokens.transformers is "+tt.wrong) || !strings.Contains(r.stdout, "hint: --transformers "+tt.right+"\n") {
				t.Errorf("doctor printed\n%s", r.stdout)
			}
			r = mustRun(t, exit.OK, verb("doctor", tt.right)...)
			if !strings.Contains(r.stdout, "ok   transformers "+tt.says+"not like ") {
				t.Errorf("doctor printed\n%s", r.stdout)
			}

			r = mustRun(t, exit.Unusable, verb("collect", tt.wrong)...)
			if !strings.Contains(r.stderr, "the server renders like transformers "+tt.right) || !strings.Contains(r.stderr, "hint: --transformers "+tt.right+"\n") {
				t.Errorf("collect printed\n%s", r.stderr)
			}
			mustRun(t, exit.Tolerance, verb("collect", tt.wrong, "--preflight", "connect")...)
			if got := readDataset(t, out); len(got.rows) != 0 || len(got.failures) != 1 {
				t.Errorf("%d samples have rows and %d failed, want 0 and 1", len(got.rows), len(got.failures))
			}
			// tokens.* can change while the run has no rows.
			mustRun(t, exit.OK, verb("collect", tt.right, "--resume", "--retry-failed")...)
			got := readDataset(t, out)
			for _, rows := range got.rows {
				for _, row := range rows {
					if row.Verification != tokenize.CountVerified.String() {
						t.Errorf("a row is %s", row.Verification)
					}
				}
			}
			if len(got.rows) != 1 {
				t.Errorf("%d samples have rows, want 1", len(got.rows))
			}
			r = mustRun(t, exit.Folder, verb("collect", tt.wrong, "--resume")...)
			if want := "tokens.transformers: the run has " + tt.right + ", you set " + tt.wrong + " (--transformers)"; !strings.Contains(r.stderr, want) {
				t.Errorf("collect --resume printed\n%s", r.stderr)
			}
		})
	}
}

// If the server sends ids, rows do not depend on tokens.transformers, so a wrong value is only a
// hint.
func TestTransformersReleaseWithIDs(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true}))
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"tool","prompt":"What is 2 + 3? Use the tool."}`+"\n"))
	r := mustRun(t, exit.OK, "doctor", "--server", url, "--model", simModel, "--tokenizer", printsRoles(t), "--tasks", tasks)
	for _, want := range []string{
		"the release of transformers differs\n", "prompts still come from the turns, and are exact\n",
		"hint transformers the server renders like transformers 5.22.2, 5.23, but tokens.transformers is 4.57\n", "hint: --transformers 5.22.2\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("doctor printed\n%s\nwithout %q", r.stdout, want)
		}
	}
}
