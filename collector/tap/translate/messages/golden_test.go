package messages_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
)

var update = flag.Bool("update", false, "rewrite the results in testdata")

// TestRequests compares the chat completion for each request in testdata/request. A line break before
// each message makes the files readable.
func TestRequests(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/request", func(t *testing.T, files map[string]string) {
		t.Helper()
		call, err := messages.Dialect{}.Request([]byte(files["request"]))
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(call.Chat) {
			t.Errorf("not JSON: %s", call.Chat)
		}
		if _, streamed := fields(t, []byte(files["request"]))["stream"]; call.Streamed != streamed {
			t.Errorf("Streamed = %v, want %v", call.Streamed, streamed)
		}
		files["chat"] = strings.ReplaceAll(string(call.Chat), `{"role":`, "\n"+`{"role":`) + "\n"
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/answer", func(t *testing.T, files map[string]string) {
		t.Helper()
		var a translate.Answer
		if err := json.Unmarshal([]byte(files["answer"]), &a); err != nil {
			t.Fatal(err)
		}
		whole := replyTo(t).Whole(nil, &a)
		if !json.Valid(whole) {
			t.Errorf("not JSON: %s", whole)
		}
		files["message"] = strings.ReplaceAll(string(whole), `{"type":`, "\n"+`{"type":`) + "\n"
		files["events"] = string(replyTo(t).Events(nil, &a))
	})
}

// golden runs each file in a folder. The function run sets the results in files.
func golden(t *testing.T, folder string, run func(t *testing.T, files map[string]string)) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) < 5 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		t.Run(strings.TrimSuffix(e.Name(), ".txtar"), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(folder, e.Name())
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, f := range a.Files {
				files[f.Name] = string(f.Data)
			}
			run(t, files)
			changed := false
			for i, f := range a.Files {
				if got := files[f.Name]; got != string(f.Data) {
					changed = true
					a.Files[i].Data = []byte(got)
					if !*update {
						t.Errorf("%s:\n%s\nwant:\n%s", f.Name, got, f.Data)
					}
				}
			}
			if changed && *update {
				write(t, path, a)
			}
		})
	}
}

func write(t *testing.T, path string, a *txtar.Archive) {
	t.Helper()
	if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRefused compares the errors for the requests in testdata/refused.txtar.
func TestRefused(t *testing.T) {
	t.Parallel()
	const path = "testdata/refused.txtar"
	a, err := txtar.ParseFile(path)
	if err != nil || len(a.Files) < 25 {
		t.Fatal(err)
	}
	for i, f := range a.Files {
		body, want, _ := strings.Cut(strings.TrimSuffix(string(f.Data), "\n"), "\n")
		_, err := messages.Dialect{}.Request([]byte(body))
		e := asError(err)
		switch {
		case e == nil || e.Status != 400 || e.Code != "bad_request" || e.Message == "":
			t.Errorf("%s: Request(%s) = %#v, want an error with status 400", f.Name, body, err)
		case *update:
			a.Files[i].Data = []byte(body + "\n" + e.Message + "\n")
		case e.Message != want:
			t.Errorf("%s: error %q, want %q", f.Name, e.Message, want)
		}
	}
	if *update {
		write(t, path, a)
	}
	if _, err := (messages.Dialect{}).Request([]byte("{\"model\":\"\xff\"}")); asError(err) == nil {
		t.Error("a request that is not UTF-8 is not refused")
	}
}

func asError(err error) *translate.Error {
	e, _ := errors.AsType[*translate.Error](err)
	return e
}

// replyTo returns the reply to a small request.
func replyTo(tb testing.TB) translate.Reply {
	tb.Helper()
	call, err := messages.Dialect{}.Request([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		tb.Fatal(err)
	}
	return call.Reply
}

func fields(tb testing.TB, object []byte) (out map[string]json.RawMessage) {
	tb.Helper()
	if err := json.Unmarshal(object, &out); err != nil {
		tb.Fatalf("%v: %s", err, object)
	}
	return out
}
