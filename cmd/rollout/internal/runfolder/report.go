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
	"github.com/rollout-rl/rollout/sink"
)

// ReportPage is the file name of the report for people. [ReportFile] has the same content for
// programs.
const ReportPage = "report.html"

// WriteReport writes report.json and report.html for a run that has just ended. WriteReport passes
// the report to the parameter last, which returns the summary of this process as JSON, or nil.
// WriteReport returns the damage that it found in the run's files.
func WriteReport(folder *Folder, last func(*report.Report) (json.RawMessage, error)) (damage []error, err error) {
	info, err := Read(folder.Dir)
	if err != nil {
		return nil, err
	}
	scores, err := ReadScores(folder.Dir, nil, folder.Dir, info.ID, "")
	if err != nil {
		return nil, err
	}
	r, err := ReadReport(folder.Dir, scores, report.DefaultPass, false, true)
	if err != nil {
		return nil, err
	}
	summary, err := last(r)
	if err != nil {
		return r.Damage, err
	}
	if summary != nil {
		r.LastInvocation = summary
	}
	if err := folder.writeJSON(ReportFile, r); err != nil {
		return r.Damage, err
	}
	return r.Damage, writeFile(folder.Dir, ReportPage, folder.Mode, func(w io.Writer) error { return report.Page(w, Name(folder.Dir), r) })
}

// Name returns the name of the run's folder.
func Name(dir string) string {
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	return filepath.Base(dir)
}

// ReadReport builds the current report of the run in dir, with the rewards of a scores set, or of the collection
// if it is nil. The parameter running is true if another process is collecting into the run. If again is set,
// ReadReport can reuse the existing report, provided that nothing has been collected since.
func ReadReport(dir string, scores *sink.Scores, pass float64, running, again bool) (*report.Report, error) {
	info, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if err := info.CountTasks(dir); err != nil {
		return nil, err
	}
	run := info.Reported(pass)
	run.Scores, run.Running = scores, running
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

// Reported returns what a report needs to know about the run.
func (i *Info) Reported(pass float64) report.Run {
	run := report.Run{
		ID: i.ID, CreatedAt: i.CreatedAt, Tasks: i.Tasks.Tasks, Planned: i.Tasks.Planned, Copied: i.Parent != nil || i.Imported != nil,
		Program: version.Read().Version, Now: time.Now(), Pass: pass,
	}
	// The model's name is the only setting that the report shows.
	_ = json.Unmarshal(i.Config["agent"]["model"], &run.Model)
	for _, s := range i.Servers {
		run.Servers = append(run.Servers, s.URL)
	}
	return run
}

// lastReport returns the existing report in dir. It returns nil if the report is missing or cannot
// be decoded.
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
		return nil, exit.With(exit.Folder, fmt.Errorf("%s has version %d, but this program supports only version %d", filepath.Join(dir, ReportFile), old.Version, report.Version))
	}
	if err != nil {
		return nil, nil //nolint:nilerr // the new report replaces it
	}
	return old, nil
}
