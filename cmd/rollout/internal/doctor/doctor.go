// Package doctor checks whether a run would work on this machine, with these servers and this
// model. It makes one real rollout per server and compares the prompt of every call with the
// server's record. With Tune, it also reports what makes a server slow or fragile (tune.go).
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/taps"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Doctor runs the checks and counts the bad results.
type Doctor struct {
	Config *config.Config
	// Prompt and TaskID choose the message for the agent, either as text or as a task. If both are
	// empty, the doctor uses the first task. If there is no task file, it uses its own message.
	Prompt, TaskID string
	// Tune enables the checks for settings that make the servers slow or fragile.
	Tune bool
	// Report is called with the result of every check. Say is called with messages about
	// connections.
	Report func(Check)
	Say    func(format string, args ...any)

	tap   *tap.Index    // calls that taps saw; nil if no tap is configured or the taps cannot be opened
	model *prompt.Model // nil if no tokenizer is configured
	task  *collector.Task
	bad   int
	// calls contains the calls in the last reply and the findings about their prompts.
	calls    []prompt.Examined
	releases prompt.Releases
	// tapped contains the calls in the last reply, as seen by the tap. It is nil if there is no
	// tap.
	tapped []tokenize.Call
	// endpoint is the URL at which the server called the model for the last reply. seen is true if
	// the tap saw every call in that reply.
	endpoint string
	seen     bool
}

func (d *Doctor) findTask() error {
	file := d.Config.Tasks.File
	d.task = &collector.Task{ID: "doctor", Messages: []string{cmp.Or(d.Prompt, doctorText)}}
	if d.Prompt != "" || d.TaskID == "" && (file == "" || file == "-") {
		return nil
	}
	if file == "" || file == "-" {
		return exit.Usagef("--task needs a task file: use --tasks FILE")
	}
	for t, err := range tasks.Read(file, nil) {
		if err != nil {
			return err
		}
		if d.TaskID == "" || d.TaskID == t.ID {
			d.task = &t
			return nil
		}
	}
	return exit.Usagef("--task: %s has no task %q", file, d.TaskID)
}

// A State is the result of a check.
type State string

// The possible states. A Hint is about something that is not necessarily a problem.
const (
	OK   State = "ok"
	Bad  State = "bad"
	Hint State = "hint"
)

// A Check is the result of one check, with a hint on how to fix the problem.
type Check struct {
	State      State
	Name, Text string
	Detail     []string
	Hint       string // how to fix the problem; can be empty
}

// Run runs all checks, first for this machine and then for every server. It returns the number of
// bad results. It returns an error only if the arguments are wrong.
func (d *Doctor) Run(ctx context.Context) (bad int, err error) {
	d.disk()
	d.files()
	d.loadModel()
	if d.Config.Kind() == config.KindHarness {
		err := d.harness(ctx)
		return d.bad, err
	}
	tapped, err := taps.Open(d.Config, func() time.Time { return time.Now().Add(-taps.Before) })
	if err != nil {
		d.failed("tap", err)
	}
	d.tap = tapped.Index()
	defer tapped.Follow(d.Say)()
	if err := d.findTask(); err != nil {
		return 0, err
	}
	clients, err := connect.Clients(d.Config, func(text string) { d.Say("%s", text) }, nil)
	if err != nil {
		return 0, err
	}
	for i, client := range clients {
		d.calls, d.tapped, d.endpoint, d.seen = nil, nil, "", false
		if answers := d.server(ctx, client); answers && d.Tune && ctx.Err() == nil {
			d.tune(ctx, i, client)
		}
		client.CloseIdle()
	}
	return d.bad, nil
}

// report passes the result of a check to Report. If the result is bad, it increments the number of
// bad results.
func (d *Doctor) report(state State, name, text string, detail []string, hint string) {
	if state == Bad {
		d.bad++
	}
	d.Report(Check{state, name, text, detail, hint})
}

func (d *Doctor) ok(name, format string, args ...any) {
	d.report(OK, name, fmt.Sprintf(format, args...), nil, "")
}

func (d *Doctor) failed(name string, err error) {
	d.report(Bad, name, strings.TrimPrefix(oneLine(err), name+" "), nil, exit.HintOf(err))
}

// leastDisk is the free space below which a run is likely to fill the disk.
const leastDisk = 1 << 30

func (d *Doctor) disk() {
	dir, err := filepath.Abs(cmp.Or(d.Config.Output.Dir, "."))
	if err != nil {
		d.failed("disk", err)
		return
	}
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		d.failed("disk", fmt.Errorf("%s: %w", dir, err))
		return
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // the types of both differ between systems
	if free < leastDisk {
		d.report(Hint, "disk", fmt.Sprintf("%s free at %s", format.Bytes(free), dir), nil, "check that the run fits: a million tokens take about 4 MB")
		return
	}
	d.ok("disk", "%s free at %s", format.Bytes(free), dir)
}

// files compares the limit on open files with the number of connections that a run needs. If the
// limit is too low, the run has fewer samples in flight.
func (d *Doctor) files() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.failed("files", err)
		return
	}
	all, _ := machine.InFlight(d.Config, math.MaxInt, machine.Machine{Files: math.MaxUint64})
	need := uint64(machine.Sum(all)) + machine.SpareFiles
	if n, why := machine.InFlight(d.Config, math.MaxInt, machine.Machine{Files: limit.Cur}); why != "" {
		d.report(Hint, "files", fmt.Sprintf("the limit is %d open files, but the run needs %d, so collect will keep only %d samples in flight instead of %d", limit.Cur, need, machine.Sum(n), machine.Sum(all)), nil,
			fmt.Sprintf("raise the limit: ulimit -n %d", need))
		return
	}
	d.ok("files", "the limit is %d open files; %d are needed", limit.Cur, need)
}

func (d *Doctor) loadModel() {
	if d.Config.Tokens.Tokenizer == "" && d.Config.Recorded() {
		return // the prompts are recorded
	}
	if d.Config.Tokens.Tokenizer == "" {
		d.report(Hint, "tokenizer", "tokens.tokenizer is not set, so prompts are known only if the server sends them", nil,
			"pass the folder of the model's tokenizer and chat template with --tokenizer")
		return
	}
	m, err := model.Load("tokens.tokenizer", d.Config.Tokens.Tokenizer, d.Config.Tokens.Experimental, d.Config.Releases())
	if err != nil {
		d.failed("tokenizer", err)
		return
	}
	m.Transformers, m.Zone = d.Config.Release(), d.Config.Server.Timezone
	d.model = m
	info := runfolder.DescribeModel(m)
	d.ok("tokenizer", "%s, ids below %d, sha256 %.16s…", info.Family, info.VocabSize, info.TokenizerSHA256)
	d.ok("template", "%s, sha256 %.16s…", info.ChatTemplate, info.ChatTemplateSHA256)
	stops, size := "the model's files list no stop ids, so rollout takes stop ids from finish reasons", "the vocabulary size is not in config.json"
	if len(info.StopIDs) > 0 {
		stops = "the engine stops at " + strings.ReplaceAll(strings.Trim(fmt.Sprint(info.StopIDs), "[]"), " ", ", ")
	}
	if info.EngineVocabSize > 0 {
		size = fmt.Sprintf("the vocabulary size is %d", info.EngineVocabSize)
	}
	d.ok("end of turn", "%s; %s", stops, size)
}
