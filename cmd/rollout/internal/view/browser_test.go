package view_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// many is the number of samples of the run with which the speed of the page is tested.
const many = 100_000

// TestBrowser runs web/test in a browser, on a small run, a run of 100,000 samples, and the page in
// a file. .ci/page.sh installs what it needs. SCREENSHOTS is a folder for pictures of all pages, and
// PICTURES a folder for the pictures in the documentation.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := os.Getenv("ROLLOUT_BROWSER")
	if browser == "" {
		t.Skip("ROLLOUT_BROWSER is not set: .ci/page.sh sets it")
	}
	small := smallRun(t)
	v := open(t, small)
	var file bytes.Buffer
	write(t, v, &file)
	out := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(out, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	growing := filepath.Join(t.TempDir(), "growing")
	m := newMaker(t)
	m.sample("first", 0, 1, new(1.0), m.row(chat("q"), answers))
	m.write(growing)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "web/test/page.test.mjs") //nolint:gosec // the test's own program
	cmd.Env = append(os.Environ(),
		"PAGE_SMALL="+serve(t, small, false), "PAGE_FILE=file://"+out, "PAGE_GROWING="+serve(t, growing, true),
		"PAGE_MANY="+serve(t, manyRun(t, many), false))
	if pictures := os.Getenv("PICTURES"); pictures != "" {
		cmd.Env = append(cmd.Env, "PAGE_PICTURES="+serve(t, pictureRun(t), false))
	}
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
}
