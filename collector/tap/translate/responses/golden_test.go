package responses_test

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
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

var update = flag.Bool("update", false, "rewrite the results in testdata")

// TestRequests compares the chat completion for each request in testdata/request. A line break before
// each message makes the files readable.
func TestRequests(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/request", func(t *testing.T, files map[string]string) {
		t.Helper()
		call := request(t, files["request"])
		files["chat"] = strings.ReplaceAll(string(call.Chat), `{"role":`, "\n"+`{"role":`) + "\n"
	})
}

// TestAnswers compares the response and the events for each answer in testdata/answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/answer", func(t *testing.T, files map[string]string) {
		t.Helper()
		var a translate.Answer
		if err := json.Unmarshal([]byte(files["answer"]), &a); err != nil {
			t.Fatal(err)
		}
		whole := request(t, files["request"]).Reply.Whole(nil, &a)
		if !json.Valid(whole) {
			t.Errorf("not JSON: %s", whole)
		}
		files["response"] = strings.ReplaceAll(string(whole), `{"id":`, "\n"+`{"id":`)
		files["events"] = string(request(t, files["request"]).Reply.Events(nil, &a))
	})
}

// TestRefused compares the errors for the requests in testdata/refused.txtar. Each file is a request and
// the error.
func TestRefused(t *testing.T) {
	t.Parallel()
	const path = "testdata/refused.txtar"
	a, err := txtar.ParseFile(path)
	if err != nil || len(a.Files) < 20 {
		t.Fatal(len(a.Files), err)
	}
	for i, f := range a.Files {
		body, want, _ := strings.Cut(strings.TrimSuffix(string(f.Data), "\n"), "\n")
		got := failure(t, body).Code + ": " + failure(t, body).Message
		if *update {
			a.Files[i].Data = []byte(body + "\n" + got + "\n")
		} else if got != want {
			t.Errorf("%s: %s\nwant %s", f.Name, got, want)
		}
	}
	if *update {
		write(t, path, a)
	}
}

// request translates a request that is valid.
func request(t *testing.T, body string) *translate.Call {
	t.Helper()
	call, err := responses.Dialect{}.Request([]byte(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if !json.Valid(call.Chat) {
		t.Fatalf("not JSON: %s", call.Chat)
	}
	return call
}

// failure returns the error of a request that is refused.
func failure(t *testing.T, body string) *translate.Error {
	t.Helper()
	call, err := responses.Dialect{}.Request([]byte(body))
	e, is := errors.AsType[*translate.Error](err)
	if !is || call != nil || e.Status != 400 || e.Message == "" {
		t.Fatalf("Request(%s) = %v, %v, want an error with status 400", body, call, err)
	}
	return e
}

// golden runs each file in a folder. The function run sets the results in files.
func golden(t *testing.T, folder string, run func(t *testing.T, files map[string]string)) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) < 3 {
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
			for i, f := range a.Files {
				got := strings.TrimRight(files[f.Name], "\n") + "\n"
				if got != string(f.Data) && !*update {
					t.Errorf("%s:\n%s\nwant:\n%s", f.Name, got, f.Data)
				}
				a.Files[i].Data = []byte(got)
			}
			if *update {
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
