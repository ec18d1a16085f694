package prompt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// clockZones lists 48 zones: every kind of offset, and summer time in both hemispheres.
var clockZones = strings.Fields(`UTC Etc/GMT+12 Pacific/Pago_Pago Pacific/Honolulu Pacific/Marquesas America/Anchorage America/Los_Angeles
America/Denver America/Phoenix America/Chicago America/Mexico_City America/New_York America/Lima America/Caracas America/Halifax America/Santiago
America/St_Johns America/Sao_Paulo America/Argentina/Buenos_Aires America/Noronha Atlantic/South_Georgia Atlantic/Azores Atlantic/Reykjavik
Europe/London Europe/Lisbon Europe/Berlin Africa/Lagos Europe/Athens Africa/Cairo Africa/Johannesburg Europe/Moscow Africa/Nairobi Asia/Tehran
Asia/Dubai Asia/Kabul Asia/Karachi Asia/Kolkata Asia/Kathmandu Asia/Dhaka Asia/Yangon Asia/Bangkok Asia/Shanghai Australia/Eucla Asia/Tokyo
Australia/Adelaide Australia/Sydney Pacific/Chatham Pacific/Kiritimati`)

var clockOptions = chat.Options{BOSToken: "<s>", EOSToken: "</s>"}

// A clockTemplate reads the clock.
type clockTemplate struct {
	name, source string
	printed      bool // prints the time even if the conversation has a system message
}

// clockTemplates returns the real templates that read the clock, and some test templates.
func clockTemplates(t *testing.T) []clockTemplate {
	t.Helper()
	var all []clockTemplate
	for name, source := range chatTemplates(t) {
		if strings.Contains(source, "strftime_now") {
			// These print the time only in their own system message.
			own := strings.HasPrefix(name, "Mistral-Small") || strings.HasPrefix(name, "ibm-granite") || strings.HasPrefix(name, "Apertus")
			all = append(all, clockTemplate{name, source, !own})
		}
	}
	if len(all) != 6 {
		t.Fatalf("%d templates read the clock, want 6", len(all))
	}
	const body = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
	all = append(all,
		clockTemplate{"words", "On {{ strftime_now('%A, %d %B %Y') }}." + body, true},
		clockTemplate{"hour", "At {{ strftime_now('%H') }} on {{ strftime_now('%Y-%m-%d') }}." + body, true},
		clockTemplate{"branch", "{% if strftime_now('%d') == '25' %}{{ strftime_now('%H h') }}{% else %}early{% endif %}" + body, true},
	)
	slices.SortFunc(all, func(a, b clockTemplate) int { return strings.Compare(a.name, b.name) })
	return all
}

var goLayouts = map[string]string{
	"%Y-%m-%d": "2006-01-02", "%d %b %Y": "02 Jan 2006", "%B %d, %Y": "January 02, 2006", "%A, %d %B %Y": "Monday, 02 January 2006",
	"%H": "15", "%d": "02", "%H h": "15 h", "%d %B %Y": "02 January 2006",
}

// fixed returns the template with strftime_now replaced by the given time.
func (c *clockTemplate) fixed(t *testing.T, at time.Time, tok *prompt.Model) (key string, m *prompt.Model) {
	t.Helper()
	var prints []string
	for format, layout := range goLayouts {
		if strings.Contains(c.source, format) {
			prints = append(prints, fmt.Sprintf("%q: %q", format, at.Format(layout)))
		}
	}
	slices.Sort(prints)
	source := "{% macro strftime_now(format) %}{{ {" + strings.Join(prints, ", ") + "}[format] }}{% endmacro %}\n" + c.source
	template := parseTemplate(t, c.name, source, clockOptions)
	if template.ReadsClock() {
		t.Fatalf("%s still reads the clock", c.name)
	}
	return c.name + source[:strings.Index(source, "endmacro")], &prompt.Model{Template: template, Tokenizer: tok.Tokenizer}
}

func serverStamp(at time.Time) letta.Time {
	return letta.Time(at.UTC().Format("2006-01-02T15:04:05+00:00"))
}

// A clockWorld generates lives whose prompts were rendered at given times.
type clockWorld struct {
	t     *testing.T
	qwen3 *prompt.Model
	lives map[string]*knownLife
}

// life returns a life on a server in the zone, whose first call was rendered at start. Its prompts
// do not come from the code under test, but from templates that read no clock.
func (w *clockWorld) life(c *clockTemplate, of plan, zone *time.Location, start time.Time, pause time.Duration) *knownLife {
	t := w.t
	t.Helper()
	at := func(instant time.Time) *knownLife {
		key, model := c.fixed(t, instant.In(zone), w.qwen3)
		key += fmt.Sprint(of)
		if w.lives[key] == nil {
			w.lives[key] = madeUp(t, model, 5, of)
		}
		return w.lives[key]
	}
	out := at(start).clone()
	out.truths = nil
	stamp := func(list letta.Messages, step string, kind letta.MessageType, at time.Time) {
		for j := range list {
			if list[j].StepID == step && (list[j].Type == letta.TypeToolReturn) == (kind == letta.TypeToolReturn) {
				list[j].Date = serverStamp(at)
			}
		}
	}
	m, e, n, now := out.memory, out.reply.Evidence, 0, start
	for i := range m.steps {
		u := letta.UsageStatistics{StepCount: int32(len(m.steps[i]))}
		m.messages[i][0].Date = serverStamp(now.Add(-200 * time.Millisecond)) // the user's message
		for k := range m.steps[i] {
			l, s := at(now), &m.steps[i][k]
			*s = l.memory.steps[i][k]
			m.traces[s.ID] = l.memory.traces[s.ID]
			out.truths = append(out.truths, l.truths[n])
			n++
			u.PromptTokens, u.CompletionTokens = u.PromptTokens+*s.PromptTokens, u.CompletionTokens+*s.CompletionTokens
			u.ContextTokens = new(*s.PromptTokens + *s.CompletionTokens)
			for _, list := range []letta.Messages{m.messages[i], e.Sends[i].Response.Messages} {
				stamp(list, s.ID, letta.TypeAssistant, now.Add(700*time.Millisecond))
				stamp(list, s.ID, letta.TypeToolReturn, now.Add(900*time.Millisecond))
			}
			now = now.Add(pause)
		}
		e.Sends[i].Response.Usage = u
	}
	return out
}

// clockPlans lists the shapes of the lives. Not every template prints tool calls.
var clockPlans = []plan{{name: "one", sends: []int{1}}, {name: "talk", sends: []int{1, 1, 1}}, {name: "tools", sends: []int{3, 2}, tools: 1}}

// TestClock renders lives of servers in 48 zones, near their midnight and far from it, with the
// collector elsewhere. Every prompt that counts as proven is the one that the model received. With
// the right zone, every call is proven unless it crosses midnight or a full hour.
func TestClock(t *testing.T) {
	t.Parallel()
	qwen := qwen3(t)
	w := &clockWorld{t, qwen, map[string]*knownLife{}}
	r := rand.New(rand.NewPCG(1, 30))
	proven, open, runs := map[string]int{}, map[string]int{}, 0
	templates := clockTemplates(t)
	for _, name := range clockZones {
		zone := must(time.LoadLocation(name))(t)
		for i := range templates {
			c := &templates[i]
			template := parseTemplate(t, c.name, c.source, clockOptions)
			of := clockPlans[r.IntN(len(clockPlans))]
			if of.tools > 0 && strings.HasPrefix(c.name, "Mistral") { // its call ids have nine letters
				of = clockPlans[1]
			}
			// November, the turn of the month, and the change of summer time.
			midnight := time.Date(2026, [...]time.Month{time.November, time.December, time.March}[r.IntN(3)], [...]int{1, 25, 29}[r.IntN(3)], 0, 0, 0, 0, zone)
			for _, before := range []time.Duration{-5*time.Hour - 31*time.Minute, -40 * time.Second, time.Duration(r.IntN(12_000)) * time.Millisecond, 3*time.Hour + 17*time.Minute} {
				pause := 2*time.Second + time.Duration(r.IntN(900))*time.Millisecond
				known := w.life(c, of, zone, midnight.Add(-before), pause)
				far := before < 0 || before > time.Hour
				for _, set := range []*time.Location{nil, zone} {
					model := &prompt.Model{Template: template, Tokenizer: qwen.Tokenizer, Zone: set}
					for kind, rebuilder := range map[string]*prompt.Rebuilder{
						"answers": prompt.NewRebuilder(model, true, true).Answers(), "records": prompt.NewRebuilder(model, true, true),
						"traces": prompt.NewRebuilder(model, false, true), "any": prompt.NewRebuilder(model, true, true).Answers().Unverified(),
					} {
						if r.IntN(5) > 0 {
							continue
						}
						runs++
						rollout := known.rollout()
						if kind == "traces" && r.IntN(2) == 0 { // as --from-runs reads it
							kind, rollout.Recorded = "runs", true
						}
						calls := must(rebuilder.Prompts(t.Context(), &known.reply.Reply, rollout))(t)
						for k := range calls {
							call := &calls[k]
							where := fmt.Sprintf("%s %s %s %s, %v before midnight, set %v, call %d", c.name, of.name, kind, name, before, set, k)
							claimed := call.Grade == tokenize.CountVerified || call.Grade == tokenize.Exact
							switch {
							case claimed && !slices.Equal(call.PromptIDs, known.truths[k].prompt):
								t.Errorf("%s: %v with a prompt that the model was not given", where, call.Grade)
							case claimed:
								proven[fmt.Sprint(set != nil, c.printed)]++
							case set != nil && far, !c.printed:
								t.Errorf("%s: %v %v, want it proven: %s", where, call.Grade, call.Reason, call.Note)
							case call.Grade == tokenize.Quarantined && (call.Reason != tokenize.ReasonClock || !strings.Contains(call.Note, "server.timezone")):
								t.Errorf("%s: %v %s", where, call.Reason, call.Note)
							case kind == "any" && call.Grade != tokenize.Unverified:
								t.Errorf("%s: %v, want unverified: %s", where, call.Grade, call.Note)
							default:
								open[fmt.Sprint(set != nil, c.printed)]++
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d replies; calls proven by zone set, time printed: %v; open: %v", runs, proven, open)
	if proven["true true"] == 0 || open["false true"] == 0 || proven["false false"] == 0 || open["true true"] == 0 {
		t.Error("a kind is missing")
	}
}

// If a prompt is known, its printed time bounds the server's zone and selects the rebuilt text.
func TestExamineClock(t *testing.T) {
	t.Parallel()
	qwen := qwen3(t)
	templates := clockTemplates(t)
	c := &templates[slices.IndexFunc(templates, func(c clockTemplate) bool { return strings.HasPrefix(c.name, "openai") })]
	template := parseTemplate(t, c.name, c.source, clockOptions)
	tokyo := must(time.LoadLocation("Asia/Tokyo"))(t)
	w := &clockWorld{t, qwen, map[string]*knownLife{}}
	known := w.life(c, clockPlans[0], tokyo, time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC), time.Second)
	for _, tt := range []struct {
		name       string
		shown      bool // the turn contains its prompt
		zone       *time.Location
		open       bool
		same       bool
		from, till time.Duration
	}{
		{"shown", true, nil, false, true, 4 * time.Hour, 14 * time.Hour},
		{"shown, another zone is set", true, time.UTC, false, false, 4 * time.Hour, 14 * time.Hour},
		{"counted", false, nil, true, false, 0, 0},
		{"counted, the zone is set", false, tokyo, false, true, 0, 0},
	} {
		model := &prompt.Model{Template: template, Tokenizer: qwen.Tokenizer, Zone: tt.zone}
		life := known.clone()
		if tt.shown {
			life.reply.Sends[0].Turns[0].PromptIDs = known.truths[0].prompt
		}
		calls := must(prompt.Examine(t.Context(), model, &life.reply.Reply, life.rollout()))(t)
		x := &calls[0]
		if same := slices.Equal(x.Stored.IDs, known.truths[0].prompt); !x.PrintsTime(model) || (x.Stored.Clock != "") != tt.open || (x.Trace.Clock != "") != tt.open || same != tt.same && !tt.open {
			t.Errorf("%s: prints %v, the right ids %v, open %q and %q", tt.name, x.PrintsTime(model), same, x.Stored.Clock, x.Trace.Clock)
		}
		offsets := x.Offsets(model)
		if tt.shown != (len(offsets) > 0) || tt.shown && (offsets[0] != tt.from || offsets[len(offsets)-1] != tt.till) {
			t.Errorf("%s: offsets %v, want %v to %v", tt.name, offsets, tt.from, tt.till)
		}
	}
}
