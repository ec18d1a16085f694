// Package config holds the settings of a run: what there is to set, how each setting is
// called in a file, in the environment and on the command line, what its value is and
// where that came from.
//
// A setting's way:
//
//	settings.go   one line per setting: key, flag, type, help
//	load.go       file, environment, flags: each sets texts, the last one wins
//	setting.go    a text becomes a value of its type, or a complaint
//	check.go      what is wrong with values that are fine each by itself
//
// The libraries' own Configs are made of the values in wire.go of the command.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"io/fs"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Config is all that collect can be told. It is filled from defaults, a file,
// the environment and flags, in that order; settings says how each field is called
// in all four. The packages' own Configs are made from it in wire.go.
type Config struct {
	Server struct {
		URLs           []string
		Password       Secret
		MaxInFlight    int // per server
		Adaptive       bool
		EngineMetrics  []string // URLs
		ConnectTimeout time.Duration
		IdleTimeout    time.Duration // between two bytes of a reply that has begun
		StuckAfter     time.Duration // without a step of a server run that is looked up
		Timeout        time.Duration // of one send
		ReadBytes      int64         // of replies that are read at once
		ReceiveBuffer  int64         // bytes; 0: the system's
		Headers        headers
		CAFile         string
		ClientCert     string
		ClientKey      string
	}
	Agent struct {
		Model, File, System string
		Tools, ToolIDs      []string
		Tags                []string
		ClientTools         clientTools
		Create              json.RawMessage
		Temperature         *float64 // nil: the server's
		ContextWindow       int      // 0: the model's
		Approvals           agent.ApprovalPolicy
		Keep, KeepReasoning bool
		MaxSteps            int // 0: the server's
		MaxRounds           int
		Conversation        bool
		OverrideModel       string
		OverrideSystem      string
	}
	Tasks struct {
		File    string
		Samples int
		Limit   int // 0: all
		SkipBad bool
	}
	Tokens struct {
		Prompts, Drift, Tokenizer string
		Require                   string
		RealignMax, MaxRowTokens  int
		VocabSize                 int // 0: the tokenizer's
		Experimental              bool
	}
	Reward struct {
		Kind, Pattern, Path string
		Command             []string
		Processes           int
		Timeout             time.Duration // of one score by a command
		Tolerance           float64
		IgnoreCase          bool
	}
	Output struct {
		Dir, Format string
		ShardBytes  int64
		ShardAge    time.Duration
		Messages    bool
		Share       string
	}
	Run struct {
		Preflight      string
		Check          string
		Retries        int
		DataRetries    int
		FailOnError    tolerance
		MaxFailures    int // 0: no limit
		AttemptTimeout time.Duration
		BusyPatience   time.Duration
		Grace          time.Duration // 0: no bound
		Tail           tailPolicy
		MetricsAddr    string // empty: none
		MetricsPprof   bool
	}
}

// Default is the configuration of someone who says nothing.
func Default() *Config {
	c := new(Config)
	c.Server.MaxInFlight = 24 // a default PostgreSQL has 100 connections and dies near 30 in flight
	c.Server.Adaptive = true
	c.Server.ConnectTimeout = 10 * time.Second
	c.Server.IdleTimeout = time.Minute
	c.Server.StuckAfter = 15 * time.Minute
	c.Server.Timeout = 30 * time.Minute
	c.Server.ReadBytes = 32 << 20
	c.Agent.MaxRounds = 64
	c.Tasks.Samples = 1
	c.Tokens.Prompts = "auto"
	c.Tokens.Require = "auto"
	c.Tokens.Drift = "fork"
	c.Tokens.RealignMax = 32
	c.Reward.Kind = "none"
	c.Reward.Processes = 1
	c.Reward.Timeout = time.Minute
	c.Output.Format = "parquet"
	c.Output.ShardBytes = 256 << 20
	c.Output.ShardAge = 5 * time.Minute
	c.Run.Preflight = PreflightCall
	c.Output.Share = shareNone
	c.Run.Check = checkSizes
	c.Run.Retries = 2
	c.Run.AttemptTimeout = time.Hour
	c.Run.BusyPatience = 30 * time.Minute
	c.Run.Grace = 5 * time.Minute
	return c
}

// settings binds every key to its field. The order is that of config show.
func (c *Config) settings(getenv func(string) string) []*Setting {
	return []*Setting{
		listSetting("server.urls", &c.Server.URLs).with("server", "URL",
			"a Letta server; give it again for several"),
		secretSetting("server.password", &c.Server.Password, getenv).with("", "",
			"the server's password, by reference: ${env:NAME} or ${file:/path}"),
		intSetting("server.max_in_flight", &c.Server.MaxInFlight, 1).with("max-in-flight", "",
			"samples in flight at once, per server, at most"),
		boolSetting("server.adaptive", &c.Server.Adaptive).with("", "",
			"find out how many samples the server can work on, up to max_in_flight; false: max_in_flight from the start"),
		listSetting("server.engine_metrics", &c.Server.EngineMetrics).with("engine-metrics", "URL",
			"Prometheus metrics of the inference engine, which then bound what is in flight as well; again for several"),
		durationSetting("server.connect_timeout", &c.Server.ConnectTimeout, time.Millisecond).with("", "",
			"how long a connection may take to be made"),
		durationSetting("server.idle_timeout", &c.Server.IdleTimeout, time.Second).with("", "",
			"how long a reply that has begun may pause"),
		durationSetting("server.timeout", &c.Server.Timeout, time.Second).with("", "",
			"how long one send may take in all"),
		durationSetting("server.stuck_after", &c.Server.StuckAfter, time.Second).with("", "",
			"how long a server run that was taken over may add no step before it is abandoned; keep it above the longest call of the model"),
		bytesSetting("server.read_bytes", &c.Server.ReadBytes, 1<<20).with("", "",
			"replies that are read at once, in bytes, which bounds memory; a larger one is read alone"),
		bytesSetting("server.receive_buffer", &c.Server.ReceiveBuffer, 0).with("", "",
			"the kernel's receive buffer per connection, at most; 0B: the system's default"),
		c.Server.Headers.setting("server.headers", getenv).with("", "",
			"headers of every request, for proxies in between; a value may be a reference"),
		stringSetting("server.ca_file", &c.Server.CAFile).with("", "FILE",
			"trust the authorities in this file (PEM) instead of the system's"),
		stringSetting("server.client_cert", &c.Server.ClientCert).with("", "FILE",
			"the certificate (PEM) that the server asks its clients for"),
		stringSetting("server.client_key", &c.Server.ClientKey).with("", "FILE",
			"the key (PEM) of server.client_cert"),

		stringSetting("agent.model", &c.Agent.Model).with("model", "HANDLE",
			"the handle of the model, as the server lists it"),
		stringSetting("agent.file", &c.Agent.File).with("agent-file", "FILE",
			"import this agent file (.af) for every sample instead of making an agent"),
		stringSetting("agent.system", &c.Agent.System).with("", "",
			"the system prompt"),
		listSetting("agent.tools", &c.Agent.Tools).with("", "",
			"names of tools on the server that the agent gets"),
		listSetting("agent.tool_ids", &c.Agent.ToolIDs).with("", "",
			"ids of tools on the server that the agent gets"),
		c.Agent.ClientTools.setting("agent.client_tools").with("", "",
			"tools that run on this side: name, description, parameters, and command or answer, timeout"),
		listSetting("agent.tags", &c.Agent.Tags).with("", "",
			"more tags for every agent"),
		optionalFloatSetting("agent.temperature", &c.Agent.Temperature).with("", "",
			"the temperature of sampling; not set: the server's"),
		intSetting("agent.context_window", &c.Agent.ContextWindow, 0).with("", "",
			"the context window, in tokens; 0: the model's"),
		textSetting("agent.approvals", &c.Agent.Approvals).with("", "stop|approve|deny",
			"what to do when the server asks whether a tool may run"),
		objectSetting("agent.create", &c.Agent.Create).with("", "",
			"more fields of the request that makes an agent, passed on unchanged"),
		boolSetting("agent.keep", &c.Agent.Keep).with("keep-agents", "",
			"leave the agents on the server"),
		boolSetting("agent.keep_reasoning", &c.Agent.KeepReasoning).with("", "",
			"stop the server from deleting text before tool calls: fewer forks"),
		intSetting("agent.max_steps", &c.Agent.MaxSteps, 0).with("", "",
			"model calls per send, at most; 0: the server's default"),
		intSetting("agent.max_rounds", &c.Agent.MaxRounds, 1).with("", "",
			"results of client tools and approvals per task message, at most"),
		boolSetting("agent.conversation", &c.Agent.Conversation).with("", "",
			"send on a conversation of the agent"),
		stringSetting("agent.override_model", &c.Agent.OverrideModel).with("", "HANDLE",
			"override_model of every send; the server then samples at temperature 1"),
		stringSetting("agent.override_system", &c.Agent.OverrideSystem).with("", "",
			"override_system of every send; the native path of 0.16 ignores it"),

		stringSetting("tasks.file", &c.Tasks.File).with("tasks", "FILE",
			"the tasks: .jsonl, .jsonl.gz, .jsonl.zst, .parquet, or - for standard input"),
		intSetting("tasks.samples", &c.Tasks.Samples, 1).with("samples", "",
			"how often each task is sampled"),
		intSetting("tasks.limit", &c.Tasks.Limit, 0).with("limit", "",
			"try the first N samples only; 0: all"),
		boolSetting("tasks.skip_bad", &c.Tasks.SkipBad).with("skip-bad-tasks", "",
			"count bad task lines and go on"),

		enumSetting("tokens.prompts", &c.Tokens.Prompts, "auto", "turns", "stored", "trace", "literal").with("prompts", "SOURCE",
			"where the prompts of the calls come from: auto, turns, stored, trace, literal"),
		stringSetting("tokens.tokenizer", &c.Tokens.Tokenizer).with("tokenizer", "DIR",
			"the folder with the model's tokenizer and chat template"),
		boolSetting("tokens.experimental", &c.Tokens.Experimental).with("experimental", "",
			"accept tokenizers whose vocabulary has not been compared with the reference"),
		enumSetting("tokens.require", &c.Tokens.Require, "auto", "any", "count_verified", "exact").with("require", "GRADE",
			"the least grade that is written as data: auto, any, count_verified, exact; auto: count_verified, and what --prompts literal gives"),
		enumSetting("tokens.drift", &c.Tokens.Drift, "fork", "realign", "reject").with("drift", "",
			"what to do when the server rewrote the history"),
		intSetting("tokens.realign_max", &c.Tokens.RealignMax, 1).with("", "",
			"with realign: how many tokens before its end an output may differ"),
		intSetting("tokens.max_row_tokens", &c.Tokens.MaxRowTokens, 0).with("max-row-tokens", "",
			"cut a row at the end of a turn before it is longer than this; 0: never"),
		intSetting("tokens.vocab_size", &c.Tokens.VocabSize, 0).with("", "",
			"the size of the vocabulary; larger ids are refused; 0: the tokenizer's, where one is given"),

		enumSetting("reward.kind", &c.Reward.Kind, "none", "exact", "contains", "regex", "number", "json", "command").with("reward", "KIND",
			"how a finished sample is scored: none, exact, contains, regex, number, json, command"),
		stringSetting("reward.pattern", &c.Reward.Pattern).with("", "",
			"of regex: the pattern; its first group is compared with the answer"),
		stringSetting("reward.path", &c.Reward.Path).with("", "",
			"of json: the path of the value, such as $.answer"),
		listSetting("reward.command", &c.Reward.Command).with("", "",
			"of command: the program that scores, and its arguments"),
		intSetting("reward.processes", &c.Reward.Processes, 1).with("", "",
			"of command: how many of it run at once"),
		durationSetting("reward.timeout", &c.Reward.Timeout, time.Millisecond).with("", "",
			"of command: how long it may take for one score; then it is killed with what it started, and the sample has no reward"),
		floatSetting("reward.tolerance", &c.Reward.Tolerance).with("", "",
			"of number: the largest difference that counts as equal"),
		boolSetting("reward.ignore_case", &c.Reward.IgnoreCase).with("", "",
			"of exact and contains: ignore case"),

		stringSetting("output.dir", &c.Output.Dir).with("out", "DIR",
			"the folder of the run: new or empty, or, with --resume, that of a run"),
		enumSetting("output.format", &c.Output.Format, "parquet", "arrow").with("format", "",
			"the format of the shards"),
		bytesSetting("output.shard_bytes", &c.Output.ShardBytes, 1<<10).with("", "",
			"close a shard at this size"),
		durationSetting("output.shard_age", &c.Output.ShardAge, time.Second).with("", "",
			"close a shard at this age"),
		enumSetting("output.share", &c.Output.Share, shareNone, shareGroup, shareAll).with("share", "",
			"who else may read the run's folder: none, the group, or all; within the umask"),
		boolSetting("output.messages", &c.Output.Messages).with("", "",
			"keep the conversation, as JSON, beside its tokens"),

		enumSetting("run.preflight", &c.Run.Preflight, PreflightCall, PreflightConnect).with("preflight", "",
			"what is tried before a run begins: call lets every server make one call of the model and refuses a run without rows; connect makes no call"),
		enumSetting("run.check", &c.Run.Check, checkSizes, CheckFull).with("check", "",
			"how the files of a run that is continued are checked before it goes on: sizes, with the digests compared while it collects; full, with all digests first"),
		intSetting("run.retries", &c.Run.Retries, 0).with("retries", "",
			"new attempts after failures of the infrastructure"),
		intSetting("run.data_retries", &c.Run.DataRetries, 0).with("data-retries", "",
			"new attempts after failures of the data; biases the data towards samples that go well"),
		textSetting("run.fail_on_error", &c.Run.FailOnError).with("fail-on-error", "N|P%",
			"how many samples, or which share of them, may fail or stay without a score"),
		intSetting("run.max_failures", &c.Run.MaxFailures, 0).with("max-failures", "",
			"end the run once more samples than this have failed; 0: never"),
		textSetting("run.tail", &c.Run.Tail).with("tail", "POLICY",
			"wait for the last samples, or cut them: wait, deadline=2h, oversample=1.05 (4 at most); a cut biases the data towards short rollouts"),
		durationSetting("run.attempt_timeout", &c.Run.AttemptTimeout, time.Second).with("", "",
			"how long one attempt may take in all"),
		durationSetting("run.busy_patience", &c.Run.BusyPatience, time.Second).with("", "",
			"how long a sample that meets nothing but a busy server (429) is tried at no cost; less where the server has room for others"),
		durationSetting("run.grace", &c.Run.Grace, 0).with("", "",
			"how long samples in flight may take to finish after the first interrupt; 0s: no limit"),
		stringSetting("run.metrics_addr", &c.Run.MetricsAddr).with("metrics-addr", "HOST:PORT",
			"serve Prometheus metrics, /healthz and /readyz here while collecting"),
		boolSetting("run.metrics_pprof", &c.Run.MetricsPprof).with("metrics-pprof", "",
			"serve Go's profiles at run.metrics_addr as well, under /debug/pprof/"),
	}
}

// check returns what is wrong with values that are fine each by itself. where
// gives the origin of a key.
func (c *Config) check(where func(key string) string) exit.Complaints {
	var bad exit.Complaints
	complain := func(key, format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s%s: %s", where(key), key, fmt.Sprintf(format, args...)))
	}
	servers := map[string]string{}
	for _, u := range c.Server.URLs {
		if err := checkURL(u); err != nil {
			complain("server.urls", "%v", err)
			continue
		}
		if before, ok := servers[sameURL(u)]; ok {
			complain("server.urls", "%s and %s are one server: max_in_flight would be exceeded there", before, u)
		}
		servers[sameURL(u)] = u
	}
	for _, u := range c.Server.EngineMetrics {
		if err := checkURL(u); err != nil {
			complain("server.engine_metrics", "%v", err)
		}
	}
	if (c.Server.ClientCert == "") != (c.Server.ClientKey == "") {
		complain("server.client_cert", "needs server.client_key: give both or neither")
	}
	if least, ok := gradeOf[c.Tokens.Prompts]; ok && least > c.Require() {
		complain("tokens.require", "tokens.prompts %s gives %s at best", c.Tokens.Prompts, least)
	}
	if c.Reward.Kind == "regex" {
		if c.Reward.Pattern == "" {
			complain("reward.pattern", "reward.kind regex needs it")
		} else if _, err := regexp.Compile(c.Reward.Pattern); err != nil {
			complain("reward.pattern", "%v", err)
		}
	}
	if c.Reward.Kind == "json" && c.Reward.Path == "" {
		complain("reward.path", "reward.kind json needs it")
	}
	if c.Reward.Kind == "command" && len(c.Reward.Command) == 0 {
		complain("reward.command", "reward.kind command needs it")
	}
	if c.Run.MetricsPprof && c.Run.MetricsAddr == "" {
		complain("run.metrics_pprof", "the profiles are served at run.metrics_addr: give that too")
	}
	return bad
}

// gradeOf is the best grade that a forced source of prompts gives.
var gradeOf = map[string]tokenize.Grade{
	"turns": tokenize.Exact, "stored": tokenize.CountVerified, "trace": tokenize.CountVerified, "literal": tokenize.Unverified,
}

// Require is the worst grade that tokens.require admits. Only who says any, or forces
// a source that proves nothing, gets rows that are not proven.
func (c *Config) Require() tokenize.Grade {
	switch {
	case c.Tokens.Require == "exact":
		return tokenize.Exact
	case c.Tokens.Require == "any", c.Tokens.Require == "auto" && c.Tokens.Prompts == "literal":
		return tokenize.Unverified
	}
	return tokenize.CountVerified
}

// CheckComplete returns what a run needs and was not given.
func (c *Config) CheckComplete() exit.Complaints {
	var bad exit.Complaints
	need := func(ok bool, key, flag string) {
		if !ok {
			bad = append(bad, fmt.Errorf("%s is not set: give --%s, or %s in the configuration file", key, flag, key))
		}
	}
	need(len(c.Server.URLs) > 0, "server.urls", "server")
	need(c.Agent.Model != "" || c.Agent.File != "", "agent.model", "model, or an agent file with --agent-file")
	need(c.Tasks.File != "", "tasks.file", "tasks")
	need(c.Output.Dir != "", "output.dir", "out")
	return bad
}

// checkURL accepts http and https URLs that name a host and hold no password.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("not a URL (want one like http://127.0.0.1:8283)") // the error of url.Parse would print what may be a password
	case u.User != nil:
		return fmt.Errorf("%s://%s: a URL holds no user and no password; use server.password", u.Scheme, u.Host)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		if strings.ContainsAny(text, "@?#") {
			return errors.New("not a URL (want one like http://127.0.0.1:8283)") // what stands before or behind these may be a secret
		}
		return fmt.Errorf("%q is not a URL (want one like http://127.0.0.1:8283)", text)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s://%s: a server's URL has neither query nor fragment", u.Scheme, u.Host)
	}
	return nil
}

// sameURL is a URL in the one spelling that all of its spellings share.
func sameURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port) + path.Clean("/"+u.EscapedPath())
}

// A tailPolicy is a collector.Tail that a configuration can give.
type tailPolicy struct{ collector.Tail }

// UnmarshalText reads what String writes.
func (t *tailPolicy) UnmarshalText(b []byte) (err error) {
	t.Tail, err = collector.ParseTail(string(b))
	return err
}

// A tolerance says how many samples may fail: a count, or a share of all.
type tolerance struct {
	count   int
	percent float64
	share   bool
}

func (t tolerance) String() string {
	if t.share {
		return strconv.FormatFloat(t.percent, 'g', -1, 64) + "%"
	}
	return strconv.Itoa(t.count)
}

// UnmarshalText reads "5" or "2.5%".
func (t *tolerance) UnmarshalText(b []byte) error {
	text := string(b)
	if p, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return fmt.Errorf("%q is not a share from 0%% to 100%%", text)
		}
		*t = tolerance{percent: f, share: true}
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is neither a number of samples nor a share such as 5%%", text)
	}
	*t = tolerance{count: n}
	return nil
}

// Allowed is how many of planned samples may fail.
func (t tolerance) Allowed(planned int) int {
	if t.share {
		return int(t.percent / 100 * float64(planned))
	}
	return t.count
}

// Who else may read what a run writes: prompts, answers and metadata are private until
// somebody says otherwise.
const (
	shareNone  = "none"
	shareGroup = "group"
	shareAll   = "all"
)

// SharedAs sets who may read.
func (c *Config) SharedAs(share string) *Config {
	c.Output.Share = share
	return c
}

// FileMode is that of the files of a run, before the umask. A folder is like its files,
// and may be entered by who may read it.
func (c *Config) FileMode() fs.FileMode {
	switch c.Output.Share {
	case shareGroup:
		return 0o640
	case shareAll:
		return 0o644
	}
	return 0o600
}

// FolderMode is the mode of a folder for files of a mode.
func FolderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// ShareOf is the setting of a run that does not say: what its folder shows. Its readers
// are not locked out.
func ShareOf(folder fs.FileInfo) string {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return shareAll
	case mode&0o040 != 0:
		return shareGroup
	}
	return shareNone
}

// The values of run.preflight.
const (
	PreflightCall    = "call"    // every server makes one real call of the model
	PreflightConnect = "connect" // an agent is made, and not spoken to
)

// The values of run.check. Existence and size of every committed file are looked at in
// any case, before anything is collected.
const (
	checkSizes = "sizes" // digests are compared while the run goes on
	CheckFull  = "full"  // digests are compared before it goes on
)
