package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/letta"
)

// probe is a tool that only reports the cost of starting it and a few settings of the server by
// name, none of them a secret. A sandbox on the server's machine has the server's environment.
var probe = letta.ToolRun{
	Name: "rollout_probe",
	Args: map[string]any{"x": 1}, // with arguments, like a model's call
	JSONSchema: json.RawMessage(`{"name": "rollout_probe", "description": "Report the cost of running this.",` +
		` "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}`),
	SourceCode: `def rollout_probe(x: int) -> str:
    """Report the cost of running this.

    Args:
        x (int): Nothing.
    """
    import json, os, sys
    t = os.times()
    names = ["LETTA_DISABLE_SQLALCHEMY_POOLING", "LETTA_PG_POOL_SIZE", "LETTA_PG_MAX_OVERFLOW", "LETTA_TRACK_PROVIDER_TRACE", "LETTA_UVICORN_TIMEOUT_KEEP_ALIVE"]
    return json.dumps({
        "cpu": t.user + t.system,
        "letta": "letta" in sys.modules,
        "local": "LETTA_PG_URI" in os.environ,
        "settings": {name: os.environ[name] for name in names if name in os.environ},
    })
`,
}

type probed struct {
	CPU      float64  `json:"cpu"`   // seconds
	Letta    bool     `json:"letta"` // all of Letta was imported
	Local    bool     `json:"local"` // it has the server's environment
	Settings settings `json:"settings"`
	took     time.Duration
}

const (
	probes = 3
	// slowTool is the duration from which tool calls dominate the time of rollouts.
	slowTool = time.Second
)

// sandbox runs the probe a few times and returns the settings that it reported. known is false if
// the settings are not available.
func (d *Doctor) sandbox(ctx context.Context, client *letta.Client) (own settings, known bool) {
	const name = "sandbox"
	const venv = "0.1–0.25 s in a small environment (" + reference + ")"
	const cure = "TOOL_EXEC_DIR=DIR TOOL_EXEC_VENV_NAME=NAME TOOL_EXEC_AUTORELOAD_VENV=false: NAME is a Python environment in DIR with pydantic and without letta; arguments are then not coerced to the declared types"
	var all []probed
	for range probes {
		p, err := runProbe(ctx, client)
		if err != nil {
			if letta.IsNotFound(err) {
				err = fmt.Errorf("the server lacks the endpoint: %w", err)
			}
			d.report(Hint, name, "cannot run an empty tool: "+oneLine(err), effect("3.5 s of CPU if every tool call imports all of Letta; %s", venv), cure)
			return nil, false
		}
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b probed) int { return int(a.took - b.took) })
	p := all[len(all)/2]
	cpu := time.Duration(p.CPU * float64(time.Second))
	text := fmt.Sprintf("an empty tool takes %s, of which %s CPU (measured: median of %d)", short(p.took), short(cpu), probes)
	switch {
	case p.Letta || cpu >= slowTool:
		d.report(Hint, name, text, effect("every tool call starts a Python process that imports all of Letta; %s", venv), cure)
	case p.took >= slowTool:
		d.report(Hint, name, text, effect("the server's machine is busy or runs its tools elsewhere; %s", venv), "add cores for the server and its tools")
	default:
		d.ok(name, "%s", text)
	}
	return p.Settings, p.Local
}

func runProbe(ctx context.Context, client *letta.Client) (*probed, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	ran, err := client.RunTool(ctx, &probe)
	if err != nil {
		return nil, err
	}
	p := &probed{took: time.Since(began)}
	if ran.Status != "success" {
		return nil, fmt.Errorf("%s", termsafe.Text(ran.Return, 200))
	}
	if err := json.Unmarshal([]byte(ran.Return), p); err != nil {
		return nil, fmt.Errorf("it returned %q", termsafe.Text(ran.Return, 60))
	}
	return p, nil
}
