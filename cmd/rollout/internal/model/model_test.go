package model

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// A file system that never answers causes an error with the name of the file. A slow one does not.
func TestReadSilent(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"stat", "open", "read"} {
		synctest.Test(t, func(t *testing.T) {
			hangs := &hangingFS{MapFS: fstest.MapFS{"f": {Data: []byte("{}")}}, call: call, end: make(chan struct{})}
			defer close(hangs.end)
			start := time.Now()
			_, err := read(hangs, func(files fs.FS) ([]byte, error) {
				if _, err := fs.Stat(files, "f"); err != nil {
					return nil, err
				}
				return fs.ReadFile(files, "f")
			})
			if err == nil || err.Error() != "f: the file system has not responded for 30s" {
				t.Errorf("%s hangs: %v", call, err)
			}
			if took := time.Since(start); took > 40*time.Second {
				t.Errorf("%s hangs: %v", call, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		text, err := read(fstest.MapFS{"f": {Data: []byte("{}")}}, func(files fs.FS) ([]byte, error) {
			time.Sleep(time.Hour) // not in a file system call
			return fs.ReadFile(files, "f")
		})
		if string(text) != "{}" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A hangingFS blocks in one kind of call until end is closed.
type hangingFS struct {
	fstest.MapFS
	call string
	end  chan struct{}
}

func (h *hangingFS) Stat(name string) (fs.FileInfo, error) {
	if h.call == "stat" {
		<-h.end
	}
	return h.MapFS.Stat(name)
}

func (h *hangingFS) Open(name string) (fs.File, error) {
	if h.call == "open" {
		<-h.end
	}
	f, err := h.MapFS.Open(name)
	return &hangingFile{f, h}, err
}

type hangingFile struct {
	fs.File
	fs *hangingFS
}

func (f *hangingFile) Read(p []byte) (int, error) {
	if f.fs.call == "read" {
		<-f.fs.end
	}
	return f.File.Read(p)
}

// A small file that unpacks to a large one needs little memory.
func TestUnpackBounded(t *testing.T) {
	for _, ending := range []string{".zst", ".gz"} {
		var packed bytes.Buffer
		var w io.WriteCloser = gzip.NewWriter(&packed)
		if ending == ".zst" {
			z, err := zstd.NewWriter(&packed)
			must(t, err)
			w = z
		}
		text := bytes.Repeat([]byte(" "), 1<<20)
		for range 64 {
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		must(t, w.Close())
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"+ending), packed.Bytes(), 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := LoadTokenizer("--tokenizer", dir, false, nil)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "100 times its size") {
			t.Errorf("%s: %v", ending, err)
		}
		// The zstd decoder has a window of 8 MiB, and blocks in flight.
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
			t.Errorf("%s: %d bytes allocated for %d", ending, got, packed.Len())
		}
	}
}

// All readers of a model's folder refuse special files and invalid files at once.
func TestLoadHostile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"pipe", "a named pipe, not", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"zero", "a device, not", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"folder", "a folder, not a file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"pointer", "git lfs pull", func(path string) error {
			return os.WriteFile(path, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:aeb1\nsize 11422650\n"), 0o600)
		}},
		{"nul", "bytes are NUL", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }},
		{"cut", "byte 9", func(path string) error { return os.WriteFile(path, []byte(`{"model":`), 0o600) }},
	} {
		for _, file := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
			if file == "chat_template.jinja" && test.name == "cut" {
				continue // any text is a template
			}
			dir := t.TempDir()
			must(t, test.make(filepath.Join(dir, file)))
			var err error
			if file == "tokenizer.json" {
				_, err = LoadTokenizer("--tokenizer", dir, false, nil)
			} else {
				_, err = LoadTemplates("--tokenizer", dir)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s as %s: %v, want %q", test.name, file, err, test.want)
			}
		}
	}
}

// Diagnose names the part that differs, and does not guess if it cannot know.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	tok, err := LoadTokenizer("--tokenizer", bpetest.Path("qwen3"), false, nil)
	must(t, err)
	encode := func(text string) []int32 {
		ids, err := tok.AppendTokens(nil, text)
		must(t, err)
		return ids
	}
	rebuilt := func(text string) prompt.Rebuilt { return prompt.Rebuilt{Text: text, IDs: encode(text)} }
	const shown, other = "<|im_start|>user\nAdd 2 and 3.<|im_end|>\n", "<|im_start|>user\nAdd 2 and 4 now.<|im_end|>\n"
	// The same text in other tokens: one per byte of "user".
	apart := slices.Concat(encode("<|im_start|>"), encode("u"), encode("s"), encode("e"), encode("r"), encode("\nAdd 2 and 3.<|im_end|>\n"))

	for _, tt := range []struct {
		name    string
		change  func(x *prompt.Examined)
		culprit string
		says    string
	}{
		{"nothing", func(*prompt.Examined) {}, "", ""},
		{"ids equal", func(x *prompt.Examined) { x.PromptIDs = encode(shown) }, "", ""},
		{"no stored messages, trace agrees", func(x *prompt.Examined) { x.Stored = prompt.Rebuilt{Err: prompt.ErrNotRebuilt} }, "", ""},
		{"id outside the vocabulary", func(x *prompt.Examined) { x.Counted, x.OutputIDs = 1, []int32{5, 1 << 20} }, "tokenizer", "sampled token 1 is id 1048576"},
		{"sampled text", func(x *prompt.Examined) { x.Counted, x.Response = 1, "Nine." }, "tokenizer", `engine  "▸Nine."`},
		{"other messages, trace agrees", func(x *prompt.Examined) { x.Stored = rebuilt(other) }, "server", "The trace's token count agrees"},
		{"other messages, trace does not agree", func(x *prompt.Examined) { x.Stored, x.Counted = rebuilt(other), 1 }, "server", "The trace's token count differs too "},
		{"count", func(x *prompt.Examined) { x.Counted++ }, "template or tokenizer", "(-1)"},
		{"cannot be rendered", func(x *prompt.Examined) {
			x.Stored, x.Trace = prompt.Rebuilt{Err: tokenize.ErrSchema}, prompt.Rebuilt{Err: prompt.ErrNotRebuilt}
		}, "template", "cannot be rebuilt"},
		{"same text, other ids", func(x *prompt.Examined) { x.PromptIDs = apart }, "tokenizer", "the same text has different ids"},
		{"ids of the trace's messages", func(x *prompt.Examined) { x.PromptIDs, x.Stored = encode(shown), rebuilt(other) }, "server", "first difference at token 8"},
		{"ids of another template", func(x *prompt.Examined) { x.PromptIDs = encode(other) }, "template", "server  [19 "},
		{"ids end early", func(x *prompt.Examined) { x.PromptIDs = encode(shown)[:4] }, "template", "server  ends here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := prompt.Examined{
				Call:    tokenize.Call{OutputIDs: encode("Five.<|im_end|>")},
				Counted: int64(len(encode(shown))), Stored: rebuilt(shown), Trace: rebuilt(shown), Response: "Five.",
			}
			tt.change(&x)
			v := Diagnose(&x, tok)
			if v.Culprit != tt.culprit || !strings.Contains(strings.Join(v.Detail, "\n"), tt.says) {
				t.Errorf("%q differs, want %q with %q:\n%s", v.Culprit, tt.culprit, tt.says, strings.Join(v.Detail, "\n"))
			}
		})
	}
}

func TestSameDifference(t *testing.T) {
	t.Parallel()
	call := func(ours int, counted int64) prompt.Examined {
		return prompt.Examined{Counted: counted, Stored: prompt.Rebuilt{IDs: make([]int32, ours)}}
	}
	for _, tt := range []struct {
		name  string
		calls []prompt.Examined
		want  int64
	}{
		{"one call", []prompt.Examined{call(5, 4)}, 0},
		{"the same", []prompt.Examined{call(5, 4), call(9, 8)}, 1},
		{"none", []prompt.Examined{call(5, 5), call(9, 9)}, 0},
		{"growing", []prompt.Examined{call(5, 4), call(9, 7)}, 0},
		{"uncounted", []prompt.Examined{call(5, 4), call(0, -1)}, 0},
	} {
		if got := SameDifference(tt.calls); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestReadEngine reads the engine's values from the files beside the tokenizer. Some cases are published
// models. <|end|> of gpt-oss ends a message, not an output.
func TestReadEngine(t *testing.T) {
	t.Parallel()
	type files = map[string]string
	for _, tt := range []struct {
		name  string
		model string // whose tokenizer_config.json names the end of text; empty: unknown
		files files
		vocab int
		stops []int32
		err   string
	}{
		{name: "nothing"},
		{name: "the tokenizer's end of text", model: "qwen3", stops: []int32{151645}},
		{name: "config.json too", model: "qwen3", files: files{"config.json": `{"eos_token_id": 7, "vocab_size": 151936}`}, vocab: 151936, stops: []int32{7, 151645}},
		{
			name: "generation_config.json too", model: "qwen3", stops: []int32{7, 8, 9, 151645},
			files: files{"config.json": `{"eos_token_id": 7}`, "generation_config.json": `{"eos_token_id": [9, 8, 9]}`},
		},
		{name: "one id", model: "qwen3", files: files{"generation_config.json": `{"eos_token_id": 5, "pad_token_id": 6}`}, stops: []int32{5, 151645}},
		{name: "null", model: "qwen3", files: files{"config.json": `{"eos_token_id": null, "vocab_size": null}`, "generation_config.json": `{"eos_token_id": null}`}, stops: []int32{151645}},
		{name: "a model with images", files: files{"config.json": `{"text_config": {"vocab_size": 152064, "eos_token_id": [3]}}`}, vocab: 152064, stops: []int32{3}},
		{name: "smaller than the tokenizer", files: files{"config.json": `{"vocab_size": 1000}`}, vocab: bpetest.Tokenizer(t, "qwen3").VocabSize()},
		{name: "no JSON", model: "qwen3", files: files{"generation_config.json": `{`}, err: "generation_config.json: "},
		{name: "no object", model: "qwen3", files: files{"config.json": `[7]`}, err: "config.json: not a JSON object"},
		{name: "a text", files: files{"generation_config.json": `{"eos_token_id": "x"}`}},
		{name: "no ids", files: files{"config.json": `{"eos_token_id": [[1], null, true, 2.0, -1, 4294967296, 3]}`}, stops: []int32{3}},
		{name: "no size", files: files{"config.json": `{"vocab_size": -1}`}},
		{name: "a size of 0", files: files{"config.json": `{"vocab_size": 0, "text_config": {"vocab_size": 152064}}`}, vocab: 152064},
		{name: "a size in words", files: files{"config.json": `{"vocab_size": "big", "text_config": 5}`}},
		{name: "too large a size", files: files{"config.json": `{"vocab_size": 1e400}`}},
		{name: "other letters", files: files{"config.json": `{"EOS_token_id": "x", "Vocab_Size": 7}`}},
		{name: "Python's numbers", files: files{"config.json": `{"time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity, "vocab_size": 151936, "eos_token_id": 7}`}, vocab: 151936, stops: []int32{7}},
		{
			name: "Qwen3", model: "qwen3", vocab: 151936, stops: []int32{151643, 151645},
			files: files{"config.json": `{"eos_token_id": 151645, "vocab_size": 151936}`, "generation_config.json": `{"eos_token_id": [151645, 151643]}`},
		},
		{name: "a base model", model: "qwen3", files: files{"config.json": `{"eos_token_id": 151643, "vocab_size": 151936}`}, vocab: 151936, stops: []int32{151643, 151645}},
		{
			name: "gpt-oss", model: "gpt-oss", vocab: 201088, stops: []int32{199999, 200002, 200012},
			files: files{"config.json": `{"eos_token_id": 200002, "vocab_size": 201088}`, "generation_config.json": `{"eos_token_id": [200002, 199999, 200012]}`},
		},
		{
			name: "Llama 3.1", model: "llama3.1", vocab: 128256, stops: []int32{128001, 128008, 128009},
			files: files{"config.json": `{"eos_token_id": [128001, 128008, 128009], "vocab_size": 128256}`, "generation_config.json": `{"eos_token_id": [128001, 128008, 128009]}`},
		},
	} {
		dir, config := t.TempDir(), `{"eos_token": "<nothing>"}`
		if tt.model != "" {
			config = string(bpetest.Read(t, tt.model, bpe.FileConfig))
		}
		write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
		write("tokenizer_config.json", config)
		write("chat_template.jinja", "x")
		for name, text := range tt.files {
			write(name, text)
		}
		templates, err := LoadTemplates("--tokenizer", dir)
		must(t, err)
		m := &prompt.Model{Tokenizer: bpetest.Tokenizer(t, cmp.Or(tt.model, "qwen3")), Template: templates.For(true)}
		err = readEngine(open(dir), m)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		case tt.err == "" && (err != nil || m.VocabSize != tt.vocab || !slices.Equal(m.StopIDs, tt.stops)):
			t.Errorf("%s: %d %v %v, want %d %v", tt.name, m.VocabSize, m.StopIDs, err, tt.vocab, tt.stops)
		}
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
