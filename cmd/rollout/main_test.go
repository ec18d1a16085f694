package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/subprocess"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

func TestMain(m *testing.M) {
	if code, ok := subprocess.Main(os.Args); ok {
		os.Exit(code) //nolint:forbidigo // this process was the supervisor of a command
	}
	testscript.Main(tests{m}, map[string]func(){"rollout": main, "agent": scriptAgent, agentProgram: agentMain, presetProgram: presetMain})
}

// programs is the folder for programs that the tests build.
var programs string

type tests struct{ *testing.M }

func (m tests) Run() int {
	storetest.Setenv()
	programs = filepath.Join(os.TempDir(), fmt.Sprintf("rollout-test-%d", os.Getpid()))
	defer func() { _ = os.RemoveAll(programs) }()
	return m.M.Run()
}

// TestScripts runs the real program, each script in a new folder. The functions below are
// additional testscript commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	exchanges := must(filepath.Abs("../../testdata/letta"))(t)
	configs := must(filepath.Abs("../../configs"))(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXCHANGES", exchanges)
			e.Setenv("CONFIGS", configs)
			e.Setenv("TOKENIZERS", filepath.Join(filepath.Dir(exchanges), "tokenizers"))
			e.Setenv("TMPDIR", e.WorkDir)
			if python := os.Getenv("ROLLOUT_PYTHON"); python != "" { // its folder has a python3; last, because it can have another rollout
				e.Setenv("PATH", e.Getenv("PATH")+string(filepath.ListSeparator)+filepath.Dir(must(filepath.Abs(python))(t)))
			}
			e.Setenv("AWS_ENDPOINT_URL", storetest.Nowhere)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": scriptCommand("N command…", scriptCode), "resum": scriptCommand("FILE…", scriptResum), "ready": scriptCommand("VAR FILE", scriptReady),
			"await": scriptCommand("FILE TEXT", scriptAwait), "durable": scriptCommand("N RUN", scriptDurable), "flip": scriptCommand("OFFSET FILE…", scriptFlip),
			"agents": scriptCommand("N URL", scriptAgents), "field": scriptCommand("VAR FILE KEY", scriptField), "lines": scriptCommand("N FILE", scriptLines),
			"pack": scriptCommand("FILE…", scriptPack), "unpack": scriptCommand("FILE.zst TO", scriptUnpack), "parquet": scriptCommand("KIND FILE", scriptParquet),
			"tell": scriptCommand("RUN REQUEST", scriptTell), "ahead": scriptCommand("W K RUN [-]", scriptAhead), "counts": scriptCommand("FILE N", scriptCounts),
			"request": scriptCommand("STATUS METHOD URL [BODY]", scriptRequest), "certificate": scriptCommand("CERT KEY", scriptCertificate), "guarded": scriptCommand("URL TOKEN", scriptGuarded),
		},
	})
}

// scriptCommand returns a command of scripts. The usage names its arguments: the last one can be repeated if
// it ends with …, and can be missing if it is in brackets.
func scriptCommand(usage string, run func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		most := len(strings.Fields(usage))
		least := most
		if strings.HasSuffix(usage, "]") {
			least--
		}
		if strings.HasSuffix(usage, "…") {
			most = len(args)
		}
		if neg || len(args) < least || len(args) > most {
			ts.Fatalf("the arguments are %s", usage)
		}
		run(ts, args)
	}
}

// eachFile calls do with each file of the patterns.
func eachFile(ts *testscript.TestScript, patterns []string, do func(path string) error) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(ts.MkAbs(pattern))
		ts.Check(err)
		if len(files) == 0 {
			ts.Fatalf("no file %s", pattern)
		}
		for _, path := range files {
			ts.Check(do(path))
		}
	}
}

// code N command… runs a command that must exit with N.
func scriptCode(ts *testscript.TestScript, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// resum FILE… updates the checksum at the end of run.json or of a commit entry, so that an intended
// change of the file passes.
func scriptResum(ts *testscript.TestScript, args []string) {
	eachFile(ts, args, func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, resummed(b), 0o666)
	})
}

var sumAtEnd = regexp.MustCompile(`(?s)^(.*)(,\s*"sha256": ?")[0-9a-f]{64}("\s*\}\s*)$`)

// resummed returns the file with a correct checksum at its end.
func resummed(b []byte) []byte {
	m := sumAtEnd.FindSubmatch(b)
	if m == nil {
		return b
	}
	return fmt.Appendf(nil, "%s%s%x%s", m[1], m[2], sha256.Sum256(m[1]), m[3])
}

// ready VAR FILE waits for a file with a URL and stores the URL in a variable.
func scriptReady(ts *testscript.TestScript, args []string) {
	path := ts.MkAbs(args[1])
	poll(ts, args[1], func() bool {
		b, err := os.ReadFile(path)
		ts.Setenv(args[0], strings.TrimSpace(string(b)))
		return err == nil
	})
}

// await FILE TEXT waits until a file contains the text.
func scriptAwait(ts *testscript.TestScript, args []string) {
	path := ts.MkAbs(args[0])
	poll(ts, args[1]+" in "+args[0], func() bool {
		b, _ := os.ReadFile(path)
		return bytes.Contains(b, []byte(args[1]))
	})
}

// durable N RUN waits until N samples of a run are durable.
func scriptDurable(ts *testscript.TestScript, args []string) {
	want, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	poll(ts, args[0]+" durable samples in "+args[1], func() bool { return durable(ts.MkAbs(args[1])) >= want })
}

// durable returns the number of durable samples of a run, or 0 if it cannot be read.
func durable(dir string) int64 {
	r, err := sink.Verify(context.Background(), dir, sink.VerifyOptions{})
	if err != nil {
		return 0
	}
	return r.WAL.Pending + r.Samples
}

// flip OFFSET FILE… inverts one byte of each file.
func scriptFlip(ts *testscript.TestScript, args []string) {
	at, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	eachFile(ts, args[1:], func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		_, werr := f.WriteAt([]byte{^b[0]}, at)
		return errors.Join(err, werr, f.Close())
	})
}

// agents N URL waits until the server has N agents.
func scriptAgents(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	poll(ts, args[0]+" agents", func() bool {
		resp, err := http.Get(args[1] + "/v1/agents/?limit=1000")
		ts.Check(err)
		defer resp.Body.Close()
		var agents []json.RawMessage
		ts.Check(json.NewDecoder(resp.Body).Decode(&agents))
		return len(agents) >= want
	})
}

func poll(ts *testscript.TestScript, what string, done func() bool) {
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("waited in vain for %s", what)
		}
	}
}

// field VAR FILE KEY stores a field of the file's first JSON line in a variable.
func scriptField(ts *testscript.TestScript, args []string) {
	var v map[string]any
	ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile(args[1]))).Decode(&v))
	value, ok := v[args[2]]
	if !ok {
		ts.Fatalf("no field %s", args[2])
	}
	ts.Setenv(args[0], fmt.Sprint(value))
}

// pack FILE… compresses each file to FILE.gz and FILE.zst.
func scriptPack(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		text := []byte(ts.ReadFile(name))
		var gz bytes.Buffer
		g := gzip.NewWriter(&gz)
		_, err := g.Write(text)
		ts.Check(errors.Join(err, g.Close()))
		z, err := zstd.NewWriter(nil)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(name)+".gz", gz.Bytes(), 0o600))
		ts.Check(os.WriteFile(ts.MkAbs(name)+".zst", z.EncodeAll(text, nil), 0o600))
	}
}

// parquet KIND FILE writes a Parquet file of tasks.
func scriptParquet(ts *testscript.TestScript, args []string) {
	path := ts.MkAbs(args[1])
	answer, one := "4", int32(1)
	switch args[0] {
	case "good":
		type meta struct {
			Level int64 `parquet:"level"`
		}
		type row struct {
			ID       int64    `parquet:"id"`
			Messages []string `parquet:"messages,list"`
			Answer   *string  `parquet:"answer,optional"`
			Samples  *int32   `parquet:"samples,optional"`
			Metadata meta     `parquet:"metadata"`
			Other    float64  `parquet:"other"`
		}
		ts.Check(parquet.WriteFile(path, []row{
			{1, []string{"Add 2 and 2.", "Again."}, &answer, &one, meta{1}, 0.5},
			{2, []string{"Hi."}, nil, nil, meta{2}, 0.5},
		}))
	case "no-prompt":
		type row struct {
			ID       string `parquet:"id"`
			Question string `parquet:"question"`
		}
		ts.Check(parquet.WriteFile(path, []row{{"a", "Hi."}}))
	case "null-prompt":
		type row struct {
			ID     string  `parquet:"id"`
			Prompt *string `parquet:"prompt,optional"`
		}
		ts.Check(parquet.WriteFile(path, []row{{"a", &answer}, {"b", nil}, {"a", &answer}}))
	case "binary":
		type row struct {
			ID     string `parquet:"id"`
			Prompt []byte `parquet:"prompt"`
			Meta   string `parquet:"metadata"`
		}
		ts.Check(parquet.WriteFile(path, []row{
			{"a", []byte("text"), "{}"}, {"b", []byte("caf\xe9"), "{}"}, {"c\xff", []byte("text"), "{}"}, {"d", []byte("text"), `{"k": 1, "k": 2}`}, {"e", []byte("text"), `"\ud800"`},
		}))
	default:
		ts.Fatalf("unknown kind %s", args[0])
	}
}

// lines N FILE checks the number of lines of a file.
func scriptLines(ts *testscript.TestScript, args []string) {
	if got := strings.Count(ts.ReadFile(args[1]), "\n"); strconv.Itoa(got) != args[0] {
		ts.Fatalf("%s has %d lines, want %s", args[1], got, args[0])
	}
}

// unpack FILE.zst TO decompresses a file.
func scriptUnpack(ts *testscript.TestScript, args []string) {
	z, err := zstd.NewReader(nil)
	ts.Check(err)
	defer z.Close()
	b, err := z.DecodeAll([]byte(ts.ReadFile(args[0])), nil)
	ts.Check(errors.Join(err, os.WriteFile(ts.MkAbs(args[1]), b, 0o600)))
}

// Script commands for collect --stream.

// tell RUN REQUEST sends a request to the collector of a run and prints its answer.
func scriptTell(ts *testscript.TestScript, args []string) {
	var r ctl.Request
	ts.Check(json.Unmarshal([]byte(args[1]), &r))
	c, err := ctl.Dial(context.Background(), ts.MkAbs(args[0]))
	ts.Check(err)
	defer c.Close()
	var answer json.RawMessage
	err = c.Do(r, &answer)
	if refused, ok := errors.AsType[*ctl.RefusedError](err); ok {
		answer, err = json.Marshal(refused.Answer)
	}
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%s\n", answer)
	ts.Check(err)
}

// ahead W K RUN [-] waits until W groups are whole. It fails if more than W groups have begun, or
// if more than K are ahead. It then acknowledges the groups, unless the last argument is "-".
func scriptAhead(ts *testscript.TestScript, args []string) {
	whole, err := strconv.Atoi(args[0])
	ts.Check(err)
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	c, err := ctl.Dial(context.Background(), ts.MkAbs(args[2]))
	ts.Check(err)
	defer c.Close()
	var s ctl.Status
	poll(ts, "whole groups", func() bool {
		s = ctl.Status{}
		ts.Check(c.Do(ctl.Request{Op: ctl.OpStatus}, &s))
		if s.Groups.Ahead > most || s.Groups.Begun > whole {
			ts.Fatalf("%d groups are begun and %d ahead, want at most %d and %d", s.Groups.Begun, s.Groups.Ahead, whole, most)
		}
		return s.Groups.Whole == whole
	})
	if len(args) == 3 {
		ts.Check(c.Do(ctl.Request{Op: ctl.OpAck, Seq: &s.End.Seq, Groups: &s.End.Groups}, nil))
	}
}

// counts FILE N checks the last event of a finished run: every planned sample is counted once, none
// remains, and there are at least N informative groups. A few more are allowed, which were in
// progress.
func scriptCounts(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var done struct {
		Summary struct {
			Planned, Committed, Filtered, Failed, Skipped, Remaining int
			Groups                                                   struct{ Informative, Filtered int }
		}
	}
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &done))
	s := done.Summary
	if s.Planned == 0 || s.Planned != s.Committed+s.Filtered+s.Failed+s.Skipped || s.Remaining != 0 {
		ts.Fatalf("%+v does not add up", s)
	}
	if g := s.Groups; g.Informative < want || g.Informative > want+4 || g.Informative*2 != s.Committed || g.Filtered*2 != s.Filtered {
		ts.Fatalf("%+v, want %d informative groups of 2 samples", s, want)
	}
}

// mistakesFile shows typical mistakes like a terminal session: a command after $, its complete
// output, and its exit status in brackets. The files that the commands use follow.
var mistakesFile = filepath.Join("testdata", "mistakes.txtar")

// whatToDo matches an answer with a remedy.
var whatToDo = regexp.MustCompile(`\nhint: |did you mean|[:;] use |: pass |: set |: choose |must be |: export it|[:;] lower |: run "|with spaces`)

// Each command of mistakesFile, run with the real program and servers, gives the recorded answer.
// Every answer is a few lines long and has a remedy.
func TestMistakes(t *testing.T) {
	t.Parallel()
	archive := must(txtar.ParseFile(mistakesFile))(t)
	dir := t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(dir, f.Name)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		noError(t, os.WriteFile(path, f.Data, 0o666))
	}
	// Addresses in the file, and addresses of the servers.
	var there, here []string
	hour := latencyOf(t, "1h")
	for i, cfg := range []lettasim.Config{
		{InputIDs: true},
		{},
		{InputIDs: true, Password: "secret"},
		{InputIDs: true, Latency: hour},
	} {
		sim := must(lettasim.New(cfg))(t)
		address, was := strings.TrimPrefix(serveSim(t, sim), "http://"), fmt.Sprintf("127.0.0.1:%d", 8283+i)
		there, here = append(there, was, address), append(here, address, was)
	}
	toReal, toShown := strings.NewReplacer(there...), strings.NewReplacer(append(here, dir+"/", "")...)
	command := func(line string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", toReal.Replace(line))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "ROLLOUT_SERVER_URLS=http://"+there[1], "ROLLOUT_AGENT_MODEL="+simModel, "ROLLOUT_TASKS_FILE=tasks.jsonl", "ROLLOUT_OUTPUT_DIR=new")
		return cmd
	}
	if out, err := command("rollout collect --reward exact --out run1 --quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	busy := command("exec rollout collect --server http://127.0.0.1:8286 --out busy --preflight connect --quiet")
	noError(t, busy.Start())
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait() // killed
	})
	waitFor(t, "a run that is being collected", func() bool { return runfolder.Exists(filepath.Join(dir, "busy")) })

	blocks := strings.Split(strings.TrimSpace(string(archive.Comment)), "\n\n")
	answers := make([]string, len(blocks))
	commands := 0
	for i, block := range blocks {
		line, ok := strings.CutPrefix(strings.SplitN(block, "\n", 2)[0], "$ ")
		if !ok {
			if answers[i] = block; i > 0 { // the first block describes the file
				t.Fatalf("%s: a command begins with $, and no answer has an empty line:\n%s", mistakesFile, block)
			}
			continue
		}
		commands++
		cmd := command(line)
		out, _ := cmd.CombinedOutput() // the exit code is checked below
		code, answer := cmd.ProcessState.ExitCode(), toShown.Replace(string(out))
		answer = processOf.ReplaceAllString(answer, "process 1234 …")
		answer = shardOf.ReplaceAllString(answer, "part-….parquet")
		answers[i] = fmt.Sprintf("$ %s\n%s[%d]", line, answer, code)
		switch n := strings.Count(answer, "\n"); {
		case code <= exit.Internal:
			t.Errorf("%s: exit code %d, want one for a user error\n%s", line, code, answer)
		case n > 5:
			t.Errorf("%s: %d lines are too many\n%s", line, n, answer)
		case !whatToDo.MatchString("\n" + answer):
			t.Errorf("%s: has no remedy\n%s", line, answer)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Fatalf("%s: a run that was refused left its folder", line)
		}
	}
	if commands < 20 {
		t.Errorf("%d mistakes, want 20", commands)
	}
	if *update {
		archive.Comment = []byte(strings.Join(answers, "\n\n") + "\n\n")
		noError(t, os.WriteFile(mistakesFile, txtar.Format(archive), 0o666))
		return
	}
	for i, block := range blocks {
		if answers[i] != block {
			t.Errorf("got:\n%s\nwant:\n%s", answers[i], block)
		}
	}
}

// Parts that change from run to run: the holder of a lock and the name of a shard.
var (
	processOf = regexp.MustCompile(`process [0-9]+ .*`)
	shardOf   = regexp.MustCompile(`part-[0-9a-f-]+\.parquet`)
)
