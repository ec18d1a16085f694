package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
)

// ReportPage is the report for people; ReportFile is the same for programs.
const ReportPage = "report.html"

// WriteReport writes report.json and report.html of a run that has just ended, from
// its files. last is the JSON of what this process knows beyond them. It returns what is
// damaged of what it read.
func WriteReport(folder *Folder, last json.RawMessage) (damage []error, err error) {
	r, err := ReadReport(folder.Dir, report.DefaultPass, false, true)
	if err != nil {
		return nil, err
	}
	if last != nil {
		r.LastInvocation = last
	}
	if err := folder.writeJSON(ReportFile, r); err != nil {
		return r.Damage, err
	}
	return r.Damage, WriteFile(folder.Dir, ReportPage, folder.Mode, func(w io.Writer) error { return report.Page(w, r) })
}

// ReadReport makes the report of the run in dir as it is now. running says that
// another process is collecting into it, again that the numbers of the report that lies
// there may be taken over where nothing was collected since.
func ReadReport(dir string, pass float64, running, again bool) (*report.Report, error) {
	info, err := Read(dir)
	if err != nil {
		return nil, err
	}
	run := report.Run{
		ID: info.ID, CreatedAt: info.CreatedAt, Tasks: info.Tasks.Tasks, Planned: info.Tasks.Planned,
		Running: running, Program: version.Read().Version, Now: time.Now(), Pass: pass,
	}
	// What is shown of the configuration is no more than names.
	_ = json.Unmarshal(info.Config["agent"]["model"], &run.Model)
	for _, s := range info.Servers {
		run.Servers = append(run.Servers, s.URL)
	}
	last, err := lastReport(dir)
	if err != nil {
		return nil, err
	}
	if last != nil {
		run.LastInvocation = last.LastInvocation
	}
	if again {
		run.Last = last
	}
	r, err := report.Read(dir, run)
	if err != nil {
		return nil, ReadError(dir, err)
	}
	return r, nil
}

// lastReport is the report that lies in dir; nil: there is none, or it has another form.
func lastReport(dir string) (*report.Report, error) {
	b, err := os.ReadFile(filepath.Join(dir, ReportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	old := new(report.Report)
	err = json.Unmarshal(b, old)
	if old.Version > report.Version {
		return nil, exit.With(exit.Folder, fmt.Errorf("%s: version %d; this program knows %d", filepath.Join(dir, ReportFile), old.Version, report.Version))
	}
	if err != nil {
		return nil, nil //nolint:nilerr // it is written over
	}
	return old, nil
}
