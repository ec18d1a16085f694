package runfolder

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/tokenize"
)

// runVersion is the version of run.json that this program writes and reads.
const runVersion = 1

// An Info is the content of run.json: the configuration and the history of a run. run.json is
// written before the run starts and before each resume. It contains no secrets.
type Info struct {
	Version   int           `json:"version"` // version of the file format: runVersion
	ID        string        `json:"id"`
	CreatedAt time.Time     `json:"created_at"`
	Rollout   version.Build `json:"rollout"` // the program that created the run
	// Config is the resolved configuration of the last invocation. ConfigSHA256 is the digest of
	// its JSON encoding.
	Config       config.Values `json:"config"`
	ConfigSHA256 string        `json:"config_sha256"`
	// Identity must stay the same for the life of the run.
	Identity Identity `json:"identity"`
	Tasks    Tasks    `json:"tasks"`
	Servers  []Server `json:"servers"`         // servers of the last invocation
	Model    *Model   `json:"model,omitempty"` // nil if there is no tokenizer
	// Imported lists the files that the run was imported from. It is empty if the run was
	// collected.
	Imported []string `json:"imported,omitempty"`
	// Parent and Scorer are set if the run is a copy of another run with other rewards. Scorer gave these rewards.
	Parent *Parent `json:"parent,omitempty"`
	Scorer *Scorer `json:"scorer,omitempty"`
	// Fleet is set if the folder is the spool of a worker. The run's tasks and rows are then in a store.
	Fleet *Fleet `json:"fleet,omitempty"`
	// Invocations lists the processes that collected into the run, oldest first.
	Invocations []Invocation `json:"invocations"`
	// SHA256 is the checksum of run.json; see EncodeSummed.
	SHA256 string `json:"sha256,omitempty"`
}

// A Fleet names the fleet for which a worker collects.
type Fleet struct {
	ID       string `json:"id"`
	Location string `json:"store"` // a URL, or an absolute path
}

// A Parent is the run whose rows were scored again. Its tasks, model and settings are in the copy.
type Parent struct {
	ID       string `json:"id"`
	Location string `json:"location"` // as the user gave it
}

// An Invocation is one process that collected into a run.
type Invocation struct {
	StartedAt    time.Time     `json:"started_at"`
	Rollout      version.Build `json:"rollout"`
	PID          int           `json:"pid"`
	Host         string        `json:"host"`
	ConfigSHA256 string        `json:"config_sha256"`
	Planned      int           `json:"planned"`
	RetryFailed  bool          `json:"retry_failed,omitempty"`
	Log          string        `json:"log"` // path of the log, relative to the run's folder
	// VersionsSource lists the possible sources of the calls' policy versions, separated by commas:
	// trace, tap, url, flag and set-version. If there is no source, it is "none".
	VersionsSource string `json:"versions_source,omitempty"`
}

// noVersions is the VersionsSource of an invocation that has no source of policy versions.
const noVersions = "none"

// VersionsSource returns the possible sources of the policy versions in shards that are written
// from now on. It joins the sources of all invocations, because these shards can contain samples
// from earlier invocations.
func (i *Info) VersionsSource() string {
	var said []string
	for _, v := range i.Invocations {
		said = append(said, v.VersionsSource)
	}
	return VersionsSources(said)
}

// VersionsSourceKey is the shard metadata key of VersionsSource.
const VersionsSourceKey = "rollout.versions_source"

// VersionsSources returns the union of the given sources.
func VersionsSources(said []string) string {
	var all []string
	for _, names := range said {
		for name := range strings.SplitSeq(names, ",") {
			if name != noVersions && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return cmp.Or(strings.Join(all, ","), noVersions)
}

// versionsSource returns the possible sources of an invocation's policy versions. The parameter
// told is true if rollout ctl set-version can set versions during the run.
func versionsSource(c *config.Config, told bool) string {
	var all []string
	v := &c.Tokens.PolicyVersion
	asks := v.Traces || v.URL.Reveal() != ""
	// Traces are fetched for policy versions and for rebuilding prompts.
	rebuilds := c.Tokens.Tokenizer != "" && c.Tokens.Prompts != config.PromptsTurns && c.Tokens.Prompts != config.PromptsLiteral && c.Tokens.Prompts != config.PromptsTap
	if (asks || rebuilds) && !c.Recorded() {
		all = append(all, tokenize.VersionTrace.String())
	}
	if len(c.Tokens.Tap) > 0 || c.Recorded() {
		all = append(all, tokenize.VersionTap.String())
	}
	if asks && c.Tokens.OneEngine {
		all = append(all, tokenize.VersionURL.String())
	}
	if v.Claimed {
		all = append(all, tokenize.VersionFlag.String())
	}
	if told && !asks {
		all = append(all, tokenize.VersionSet.String())
	}
	return cmp.Or(strings.Join(all, ","), noVersions)
}

// LastLog returns the path of the last invocation's log, relative to the run's folder.
func (i *Info) LastLog() string { return i.Invocations[len(i.Invocations)-1].Log }

// Tasks is the tasks section of run.json.
type Tasks struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // digest of tasks.jsonl
	// Stream is true if the run accepts tasks while it runs. New tasks are then appended to
	// tasks.jsonl. In this case, SHA256 covers only the first Bytes bytes, and the other numbers
	// are from the start of the last invocation.
	Stream bool  `json:"stream,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
	// Groups is true if an invocation committed whole groups. Raised is true if an invocation
	// raised the number of samples of existing tasks. Groups and Raised cannot both be true.
	Groups bool `json:"groups,omitempty"`
	Raised bool `json:"raised,omitempty"`
	// GrewFrom is the digest of tasks.jsonl before tasks were last added. If a process is killed
	// before it replaces the file, the file still has this digest.
	GrewFrom string `json:"grew_from,omitempty"`
	Tasks    int    `json:"tasks"`
	// Samples is the total number of samples, before the limit is applied.
	Samples int `json:"samples,omitempty"`
	// Planned is the number of samples after the limit is applied.
	Planned int `json:"planned"`
	// Bad counts the skipped lines.
	Bad int `json:"bad"`
}

// A Server describes one server in run.json.
type Server struct {
	URL     string `json:"url"`
	Version string `json:"version"`
	// Model is the server's description of the model. It is nil if agents are imported from a file
	// that names the model.
	Model *ServerModel `json:"model,omitempty"`
}

// A ServerModel contains the fields of a server's model that affect sampling, except the engine's
// address.
type ServerModel struct {
	Handle        string `json:"handle"`
	Name          string `json:"name"`
	ContextWindow int64  `json:"context_window"`
	EndpointType  string `json:"endpoint_type,omitempty"`
}

// NewID returns a new run id. Run ids are unique and sort by creation time.
func NewID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

// Need returns an error unless dir is the folder of a run.
func Need(dir string) error {
	_, err := Read(dir)
	return err
}

// runAround returns the run folder that contains path, or "". The parameter path can be a file of
// the run, such as a shard, or the run's data folder.
func runAround(path string) string {
	for dir := path; ; {
		parent := filepath.Dir(dir)
		if parent == dir || parent == "." && !Exists(parent) {
			return ""
		}
		if dir = parent; Exists(dir) {
			return dir
		}
	}
}

// Read reads run.json in dir and verifies its checksum.
func Read(dir string) (info Info, err error) {
	b, err := os.ReadFile(filepath.Join(dir, RunFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		hint := "pass the folder that collect created (--out)"
		if _, err := os.Lstat(filepath.Join(dir, FleetFile)); err == nil {
			hint = "it contains a fleet: rollout status shows it, and an interrupt ends a worker after its samples in flight"
		} else if run := runAround(dir); run != "" {
			hint = "did you mean " + format.Shell(run) + "?"
		}
		return info, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not a run folder (it has no %s)", dir, RunFile)), hint)
	}
	if err != nil {
		return info, exit.With(exit.Storage, err)
	}
	return Decode(filepath.Join(dir, RunFile), b)
}

// Decode decodes the content of a run.json, and verifies its checksum.
func Decode(path string, b []byte) (info Info, err error) {
	err = CheckSum(b)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	switch {
	case err != nil:
	case info.Version > runVersion:
		return info, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s has version %d, but this program supports only version %d", path, info.Version, runVersion)),
			"upgrade rollout")
	case info.Version != runVersion:
		err = fmt.Errorf("version %d was never written by rollout", info.Version)
	}
	if err != nil {
		return info, exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s is damaged: %w", path, err)),
			"this file cannot be repaired, so restore a copy; to read the rows without this file, see sink/python")
	}
	return info, nil
}

// Describe returns the content of run.json for a run that is about to start. The parameter had is
// the previous content of run.json, or nil for a new run. A resumed run keeps its id, creation time
// and invocations.
func Describe(l *config.Loader, had *Info, id Identity, tasks *TaskSet, servers []Server, model *Model) (Info, error) {
	now := time.Now()
	info := Info{Version: runVersion, ID: NewID(now), CreatedAt: now.UTC(), Rollout: version.Read()}
	if had != nil {
		info = *had
	}
	info.Config = config.Values{}
	for _, s := range l.Settings {
		section, name, _ := strings.Cut(s.Key, ".")
		if info.Config[section] == nil {
			info.Config[section] = map[string]json.RawMessage{}
		}
		raw, err := s.Json()
		if err != nil {
			return info, err
		}
		info.Config[section][name] = raw
	}
	b, err := json.Marshal(info.Config)
	if err != nil {
		return info, err
	}
	sum := sha256.Sum256(b)
	info.ConfigSHA256 = hex.EncodeToString(sum[:])
	info.Identity, info.Servers, info.Model = id, servers, model
	before := info.Tasks
	info.Tasks = Tasks{
		File: l.Config.Tasks.File, SHA256: tasks.digest, Tasks: tasks.Tasks, Samples: tasks.Samples,
		Planned: plannedSamples(l.Config, tasks), Bad: tasks.Bad,
		Groups: before.Groups || l.Config.Groups(), Raised: before.Raised || tasks.raised,
	}
	if info.Tasks.Stream = tasks.grows || before.Stream; info.Tasks.Stream {
		info.Tasks.Bytes = tasks.bytes
	} else if had != nil {
		if info.Tasks.GrewFrom = before.GrewFrom; before.SHA256 != tasks.digest {
			info.Tasks.GrewFrom = before.SHA256
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	n := len(info.Invocations) + 1
	info.Invocations = append(slices.Clone(info.Invocations), Invocation{
		StartedAt: now.UTC(), Rollout: version.Read(), PID: os.Getpid(), Host: host,
		ConfigSHA256: info.ConfigSHA256, Planned: info.Tasks.Planned, Log: LogName(n),
		VersionsSource: versionsSource(l.Config, tasks.grows && (l.Config.Kind() == config.KindAgents || l.Config.Kind() == config.KindHarness)),
	})
	return info, nil
}

// logsDir is the folder for a run's logs. It has one file per invocation.
const logsDir = "logs"

// LogName returns the path of the n-th invocation's log, relative to the run's folder.
func LogName(n int) string { return fmt.Sprintf("%s/collect-%04d.jsonl", logsDir, n) }

// run.json and fleet.json end with a checksum: the SHA-256, in lowercase hex, of all bytes before
// runSumBegin.
const (
	runSumBegin = ",\n  \"sha256\": \""
	runSumEnd   = "\"\n}\n"
)

// EncodeSummed returns the JSON text of a struct with a checksum at its end. The struct must not
// have the member sha256.
func EncodeSummed(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := format.NewJSONEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(out.Bytes(), []byte("\n}\n"))
	sum := sha256.Sum256(body)
	return fmt.Appendf(body, "%s%x%s", runSumBegin, sum, runSumEnd), nil
}

// CheckSum verifies the checksum of EncodeSummed.
func CheckSum(body []byte) error {
	at := len(body) - len(runSumBegin) - 2*sha256.Size - len(runSumEnd)
	if at < 0 || !bytes.HasPrefix(body[at:], []byte(runSumBegin)) || !bytes.HasSuffix(body, []byte(runSumEnd)) {
		return errors.New("it has no checksum at its end")
	}
	sum := sha256.Sum256(body[:at])
	if says := body[at+len(runSumBegin) : len(body)-len(runSumEnd)]; hex.EncodeToString(sum[:]) != string(says) {
		return errors.New("its checksum is wrong")
	}
	return nil
}

func (f *Folder) writeRun(info Info) error {
	info.Version, info.SHA256 = runVersion, ""
	body, err := EncodeSummed(info)
	if err != nil {
		return err
	}
	return writeFile(f.Dir, RunFile, f.Mode, func(w io.Writer) error { _, err := w.Write(body); return err })
}
