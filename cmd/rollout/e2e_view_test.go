package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// startView starts a rollout view in dir until the test ends, and returns the URL of its page.
func startView(t *testing.T, dir string, env []string, args ...string) (p *process, url string) {
	t.Helper()
	p = newProcess(t, "rollout", env, args...)
	p.cmd.Dir = dir
	p.start(t)
	t.Cleanup(p.kill)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w+/`)
	waitFor(t, "the address of the page", func() bool {
		url = address.FindString(p.said())
		return url != "" || !p.alive()
	})
	if url == "" {
		t.Fatal(p.said())
	}
	return p, url
}

// view shows a fleet in a bucket, and writes it into a file. With the URL of an S3 server in
// ROLLOUT_FLEET, the bucket is there.
func TestViewInBucket(t *testing.T) {
	t.Parallel()
	const tasks, samples = 12, 4
	var bucket http.Handler
	if server := os.Getenv("ROLLOUT_FLEET"); server != "" {
		bucket = storetest.Forward(must(url.Parse(server))(t))
	} else {
		own := &storetest.Server{}
		own.Create("bucket")
		bucket = own
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	at := "s3://bucket/view/run1?region=us-east-1&endpoint_override=" + serve(t, &http.Server{Handler: bucket})
	env := []string{"AWS_ACCESS_KEY_ID=" + storetest.Key, "AWS_SECRET_ACCESS_KEY=" + storetest.Secret}
	planFleet(t, at, sim, serveSim(t, sim), tasks, samples, 4)
	startProgram(t, "rollout", env, "work", at, "--spool", filepath.Join(t.TempDir(), "spool"), "--preflight", "connect").ends(t, 2*time.Minute, exit.OK)

	type columns struct{ N int }
	file := filepath.Join(t.TempDir(), "page.html")
	startProgram(t, "rollout", env, "view", at, "--out", file).ends(t, time.Minute, exit.OK)
	page := string(must(os.ReadFile(file))(t))
	var data struct {
		Overview struct{ Name string }
		Samples  columns
		Details  []struct{ Rows []struct{ IDs []int32 } }
	}
	_, rest, _ := strings.Cut(page, `id="data">`)
	text, _, _ := strings.Cut(rest, "</script>")
	noError(t, json.Unmarshal([]byte(text), &data))
	if data.Overview.Name != "run1" || data.Samples.N != tasks*samples || len(data.Details) != tasks*samples || len(data.Details[0].Rows[0].IDs) == 0 {
		t.Errorf("the page of %q has %d samples and the details of %d, want %d of run1", data.Overview.Name, data.Samples.N, len(data.Details), tasks*samples)
	}

	p, address := startView(t, "", env, "view", at, "--follow")
	get := func(path string) []byte {
		t.Helper()
		reply := must(http.DefaultClient.Do(must(http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody))(t)))(t)
		defer reply.Body.Close()
		body := must(io.ReadAll(reply.Body))(t)
		if reply.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", path, reply.Status, body)
		}
		return body
	}
	var served columns
	noError(t, json.Unmarshal(get("api/samples"), &served))
	if served.N != tasks*samples {
		t.Errorf("%d samples are served, want %d", served.N, tasks*samples)
	}
	contains(t, string(get("api/overview")), `"name":"run1"`, `"state":"complete"`)
	contains(t, string(get(fmt.Sprintf("api/sample/%d", tasks*samples-1))), `"ids":[`)
	contains(t, string(get("api/search?q=script")), fmt.Sprintf(`"done":%d`, tasks*samples))
	noError(t, p.cmd.Process.Signal(syscall.SIGINT))
	p.ends(t, time.Minute, exit.OK)
	for _, text := range []string{page, p.said()} {
		if strings.Contains(text, storetest.Secret) {
			t.Error("the secret is shown")
		}
	}
}
