package letta

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// The reference reads what a server sends with encoding/json, as this package did before
// it had a scanner: into structs with tags, which are turned into ours field by field. What
// it takes and refuses is what the package must take and refuse.

type oldStep struct {
	ID                      string            `json:"id"`
	Origin                  *string           `json:"origin"`
	OrganizationID          *string           `json:"organization_id"`
	ProviderID              *string           `json:"provider_id"`
	RunID                   *string           `json:"run_id"`
	AgentID                 *string           `json:"agent_id"`
	ProviderName            *string           `json:"provider_name"`
	ProviderCategory        *string           `json:"provider_category"`
	Model                   *string           `json:"model"`
	ModelHandle             *string           `json:"model_handle"`
	ModelEndpoint           *string           `json:"model_endpoint"`
	ContextWindowLimit      *int64            `json:"context_window_limit"`
	PromptTokens            *int64            `json:"prompt_tokens"`
	CompletionTokens        *int64            `json:"completion_tokens"`
	TotalTokens             *int64            `json:"total_tokens"`
	CachedInputTokens       *int64            `json:"cached_input_tokens"`
	CacheWriteTokens        *int64            `json:"cache_write_tokens"`
	ReasoningTokens         *int64            `json:"reasoning_tokens"`
	CompletionTokensDetails json.RawMessage   `json:"completion_tokens_details"`
	PromptTokensDetails     json.RawMessage   `json:"prompt_tokens_details"`
	StopReason              *StopReason       `json:"stop_reason"`
	Tags                    []string          `json:"tags"`
	TID                     *string           `json:"tid"`
	TraceID                 *string           `json:"trace_id"`
	RequestID               *string           `json:"request_id"`
	Messages                []json.RawMessage `json:"messages"`
	Feedback                *string           `json:"feedback"`
	ProjectID               *string           `json:"project_id"`
	ErrorType               *string           `json:"error_type"`
	ErrorData               *oldStepError     `json:"error_data"`
	Status                  *string           `json:"status"`
}

type oldStepError struct {
	Message   *string         `json:"message"`
	Traceback *string         `json:"traceback"`
	Details   json.RawMessage `json:"details"`
}

type oldStepMetrics struct {
	ID                   string  `json:"id"`
	OrganizationID       *string `json:"organization_id"`
	ProviderID           *string `json:"provider_id"`
	RunID                *string `json:"run_id"`
	AgentID              *string `json:"agent_id"`
	StepStartNanos       *int64  `json:"step_start_ns"`
	LLMRequestStartNanos *int64  `json:"llm_request_start_ns"`
	LLMRequestNanos      *int64  `json:"llm_request_ns"`
	ToolExecutionNanos   *int64  `json:"tool_execution_ns"`
	StepNanos            *int64  `json:"step_ns"`
	BaseTemplateID       *string `json:"base_template_id"`
	TemplateID           *string `json:"template_id"`
	ProjectID            *string `json:"project_id"`
}

type oldRun struct {
	ID                 string          `json:"id"`
	Status             string          `json:"status"`
	CreatedAt          *Time           `json:"created_at"`
	CompletedAt        *Time           `json:"completed_at"`
	AgentID            *string         `json:"agent_id"`
	ConversationID     *string         `json:"conversation_id"`
	BaseTemplateID     *string         `json:"base_template_id"`
	Background         *bool           `json:"background"`
	Metadata           json.RawMessage `json:"metadata"`
	RequestConfig      json.RawMessage `json:"request_config"`
	StopReason         *StopReason     `json:"stop_reason"`
	CallbackURL        *string         `json:"callback_url"`
	CallbackSentAt     *Time           `json:"callback_sent_at"`
	CallbackStatusCode *int            `json:"callback_status_code"`
	CallbackError      *string         `json:"callback_error"`
	TTFTNanos          *int64          `json:"ttft_ns"`
	TotalDurationNanos *int64          `json:"total_duration_ns"`
}

type oldConversation struct {
	CreatedByID         *string         `json:"created_by_id"`
	LastUpdatedByID     *string         `json:"last_updated_by_id"`
	CreatedAt           *Time           `json:"created_at"`
	UpdatedAt           *Time           `json:"updated_at"`
	ID                  string          `json:"id"`
	AgentID             string          `json:"agent_id"`
	Summary             *string         `json:"summary"`
	InContextMessageIDs []string        `json:"in_context_message_ids"`
	IsolatedBlockIDs    []string        `json:"isolated_block_ids"`
	Model               *string         `json:"model"`
	ModelSettings       json.RawMessage `json:"model_settings"`
	LastMessageAt       *Time           `json:"last_message_at"`
}

type oldTool struct {
	ID                      string          `json:"id"`
	ToolType                string          `json:"tool_type"`
	Description             *string         `json:"description"`
	SourceType              *string         `json:"source_type"`
	Name                    *string         `json:"name"`
	Tags                    []string        `json:"tags"`
	SourceCode              *string         `json:"source_code"`
	JSONSchema              json.RawMessage `json:"json_schema"`
	ArgsJSONSchema          json.RawMessage `json:"args_json_schema"`
	ReturnCharLimit         *int            `json:"return_char_limit"`
	PipRequirements         json.RawMessage `json:"pip_requirements"`
	NpmRequirements         json.RawMessage `json:"npm_requirements"`
	DefaultRequiresApproval *bool           `json:"default_requires_approval"`
	EnableParallelExecution *bool           `json:"enable_parallel_execution"`
	CreatedByID             *string         `json:"created_by_id"`
	LastUpdatedByID         *string         `json:"last_updated_by_id"`
	Metadata                json.RawMessage `json:"metadata_"`
	ProjectID               *string         `json:"project_id"`
}

type oldAgentState struct {
	CreatedByID                  *string           `json:"created_by_id"`
	LastUpdatedByID              *string           `json:"last_updated_by_id"`
	CreatedAt                    *Time             `json:"created_at"`
	UpdatedAt                    *Time             `json:"updated_at"`
	ID                           string            `json:"id"`
	Name                         string            `json:"name"`
	ToolRules                    []json.RawMessage `json:"tool_rules"`
	MessageIDs                   []string          `json:"message_ids"`
	System                       string            `json:"system"`
	AgentType                    string            `json:"agent_type"`
	LLMConfig                    oldLLMConfig      `json:"llm_config"`
	EmbeddingConfig              json.RawMessage   `json:"embedding_config"`
	Model                        *string           `json:"model"`
	Embedding                    *string           `json:"embedding"`
	ModelSettings                json.RawMessage   `json:"model_settings"`
	CompactionSettings           json.RawMessage   `json:"compaction_settings"`
	ResponseFormat               json.RawMessage   `json:"response_format"`
	Description                  *string           `json:"description"`
	Metadata                     json.RawMessage   `json:"metadata"`
	Memory                       json.RawMessage   `json:"memory"`
	Blocks                       []json.RawMessage `json:"blocks"`
	Tools                        []oldTool         `json:"tools"`
	Sources                      []json.RawMessage `json:"sources"`
	Tags                         []string          `json:"tags"`
	ToolExecEnvironmentVariables []json.RawMessage `json:"tool_exec_environment_variables"`
	Secrets                      []json.RawMessage `json:"secrets"`
	ProjectID                    *string           `json:"project_id"`
	TemplateID                   *string           `json:"template_id"`
	BaseTemplateID               *string           `json:"base_template_id"`
	DeploymentID                 *string           `json:"deployment_id"`
	EntityID                     *string           `json:"entity_id"`
	IdentityIDs                  []string          `json:"identity_ids"`
	Identities                   []json.RawMessage `json:"identities"`
	PendingApproval              json.RawMessage   `json:"pending_approval"`
	MessageBufferAutoclear       bool              `json:"message_buffer_autoclear"`
	EnableSleeptime              *bool             `json:"enable_sleeptime"`
	MultiAgentGroup              json.RawMessage   `json:"multi_agent_group"`
	ManagedGroup                 json.RawMessage   `json:"managed_group"`
	LastRunCompletion            *Time             `json:"last_run_completion"`
	LastRunDurationMS            *int64            `json:"last_run_duration_ms"`
	LastStopReason               *StopReason       `json:"last_stop_reason"`
	Timezone                     *string           `json:"timezone"`
	MaxFilesOpen                 *int              `json:"max_files_open"`
	PerFileViewWindowCharLimit   *int              `json:"per_file_view_window_char_limit"`
	Hidden                       *bool             `json:"hidden"`
}

type oldLLMConfig struct {
	Model                    string          `json:"model"`
	DisplayName              *string         `json:"display_name"`
	ModelEndpointType        string          `json:"model_endpoint_type"`
	ModelEndpoint            *string         `json:"model_endpoint"`
	ProviderName             *string         `json:"provider_name"`
	ProviderCategory         *string         `json:"provider_category"`
	ModelWrapper             *string         `json:"model_wrapper"`
	ContextWindow            int64           `json:"context_window"`
	PutInnerThoughtsInKwargs *bool           `json:"put_inner_thoughts_in_kwargs"`
	Handle                   *string         `json:"handle"`
	Temperature              *float64        `json:"temperature"`
	MaxTokens                *int64          `json:"max_tokens"`
	EnableReasoner           *bool           `json:"enable_reasoner"`
	ReasoningEffort          *string         `json:"reasoning_effort"`
	MaxReasoningTokens       *int64          `json:"max_reasoning_tokens"`
	Effort                   *string         `json:"effort"`
	FrequencyPenalty         *float64        `json:"frequency_penalty"`
	CompatibilityType        *string         `json:"compatibility_type"`
	Verbosity                *string         `json:"verbosity"`
	Tier                     *string         `json:"tier"`
	ParallelToolCalls        *bool           `json:"parallel_tool_calls"`
	ResponseFormat           json.RawMessage `json:"response_format"`
	Strict                   *bool           `json:"strict"`
	ReturnLogprobs           *bool           `json:"return_logprobs"`
	TopLogprobs              *int            `json:"top_logprobs"`
	ReturnTokenIDs           *bool           `json:"return_token_ids"`
	ToolCallParser           *string         `json:"tool_call_parser"`
}

type oldUsageStatistics struct {
	CompletionTokens  int64    `json:"completion_tokens"`
	PromptTokens      int64    `json:"prompt_tokens"`
	TotalTokens       int64    `json:"total_tokens"`
	StepCount         int32    `json:"step_count"`
	RunIDs            []string `json:"run_ids"`
	CachedInputTokens *int64   `json:"cached_input_tokens"`
	CacheWriteTokens  *int64   `json:"cache_write_tokens"`
	ReasoningTokens   *int64   `json:"reasoning_tokens"`
	ContextTokens     *int64   `json:"context_tokens"`
}

type oldCompactionStats struct {
	Trigger             string `json:"trigger"`
	ContextTokensBefore *int64 `json:"context_tokens_before"`
	ContextTokensAfter  *int64 `json:"context_tokens_after"`
	ContextWindow       int64  `json:"context_window"`
	MessagesCountBefore int64  `json:"messages_count_before"`
	MessagesCountAfter  int64  `json:"messages_count_after"`
}

type oldMessageHead struct {
	ID          string      `json:"id"`
	Date        Time        `json:"date"`
	Name        *string     `json:"name"`
	MessageType MessageType `json:"message_type"`
	OTID        *string     `json:"otid"`
	SenderID    *string     `json:"sender_id"`
	StepID      *string     `json:"step_id"`
	IsErr       *bool       `json:"is_err"`
	SeqID       *int64      `json:"seq_id"`
	RunID       *string     `json:"run_id"`
}

type oldToolCall struct {
	Name       *string `json:"name"`
	Arguments  *string `json:"arguments"`
	ToolCallID *string `json:"tool_call_id"`
}

// oldToolCalls also takes a single call.
type oldToolCalls []oldToolCall

func (c *oldToolCalls) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		*c = make(oldToolCalls, 1)
		return json.Unmarshal(b, &(*c)[0])
	}
	return json.Unmarshal(b, (*[]oldToolCall)(c))
}

type oldToolReturn struct {
	Type       string     `json:"type"`
	Content    oldContent `json:"tool_return"`
	Status     string     `json:"status"`
	ToolCallID string     `json:"tool_call_id"`
	Stdout     []string   `json:"stdout"`
	Stderr     []string   `json:"stderr"`
}

// oldContent is a text or a list of parts.
type oldContent struct {
	Text  string
	Parts []oldPart
}

type oldPart struct {
	Type string `json:"-"`
	Text string `json:"text"`
}

func (c *oldContent) UnmarshalJSON(b []byte) error {
	*c = oldContent{}
	if b[0] != '[' {
		return json.Unmarshal(b, &c.Text)
	}
	c.Parts = []oldPart{}
	return eachKind(b, "type", func(kind string, raw json.RawMessage) error {
		p := oldPart{Type: kind}
		if kind == "text" {
			if err := json.Unmarshal(raw, &p); err != nil {
				return err
			}
		}
		c.Parts = append(c.Parts, p)
		return nil
	})
}

// oldApprovals is a union of decisions and results.
type oldApprovals []Approval

func (a *oldApprovals) UnmarshalJSON(b []byte) error {
	*a = nil
	if string(b) == "null" {
		return nil
	}
	*a = oldApprovals{}
	return eachKind(b, "type", func(kind string, raw json.RawMessage) error {
		out := Approval{}
		switch kind {
		case "approval":
			var d struct {
				ToolCallID string  `json:"tool_call_id"`
				Approve    bool    `json:"approve"`
				Reason     *string `json:"reason"`
			}
			if err := json.Unmarshal(raw, &d); err != nil {
				return err
			}
			fill(&out.ToolReturn, &d)
			fill(&out, &d)
		case "tool":
			var r oldToolReturn
			if err := json.Unmarshal(raw, &r); err != nil {
				return err
			}
			fill(&out.ToolReturn, &r)
		}
		out.Type = kind
		*a = append(*a, out)
		return nil
	})
}

// eachKind calls f for each element of a list, with the text of its tag.
func eachKind(list []byte, tag string, f func(kind string, raw json.RawMessage) error) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(list, &raws); err != nil {
		return err
	}
	for _, raw := range raws {
		kind, err := referenceKind(raw, tag)
		if err == nil {
			err = f(kind, raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oldMessages reads a list of messages.
func oldMessages(list []byte) (messages []Message, err error) {
	if string(list) != "null" {
		messages = []Message{}
	}
	err = eachKind(list, "message_type", func(kind string, raw json.RawMessage) error {
		m, err := oldMessage(MessageType(kind), raw)
		messages = append(messages, m)
		return err
	})
	return messages, err
}

func oldMessage(kind MessageType, raw json.RawMessage) (m Message, err error) {
	read := func(v any) {
		if err == nil {
			err = json.Unmarshal(raw, v)
		}
		if err == nil {
			fill(&m, v)
		}
	}
	read(new(oldMessageHead))
	switch kind {
	case TypeSystem, TypeUser, TypeAssistant:
		read(new(struct {
			Content oldContent `json:"content"`
		}))
	case TypeReasoning:
		read(new(struct {
			Source    *string `json:"source"`
			Reasoning string  `json:"reasoning"`
			Signature *string `json:"signature"`
		}))
	case TypeHiddenReasoning:
		read(new(struct {
			State           string  `json:"state"`
			HiddenReasoning *string `json:"hidden_reasoning"`
		}))
	case TypeToolCall, TypeApprovalRequest:
		var v struct {
			ToolCalls oldToolCalls    `json:"tool_calls"`
			First     json.RawMessage `json:"tool_call"`
		}
		read(&v)
		if err == nil && len(v.ToolCalls) == 0 && v.First != nil && string(v.First) != "null" {
			v.ToolCalls = make(oldToolCalls, 1)
			err = json.Unmarshal(v.First, &v.ToolCalls[0])
			fill(&m, &v)
		}
	case TypeToolReturn:
		var v struct {
			ToolReturns []oldToolReturn `json:"tool_returns"`
			Text        json.RawMessage `json:"tool_return"`
			Status      string          `json:"status"`
			ToolCallID  string          `json:"tool_call_id"`
			Stdout      []string        `json:"stdout"`
			Stderr      []string        `json:"stderr"`
		}
		read(&v)
		if err == nil && len(v.ToolReturns) == 0 && v.ToolCallID != "" {
			r := oldToolReturn{Type: "tool", Status: v.Status, ToolCallID: v.ToolCallID, Stdout: v.Stdout, Stderr: v.Stderr}
			if v.Text != nil {
				err = json.Unmarshal(v.Text, &r.Content.Text)
			}
			v.ToolReturns = []oldToolReturn{r}
			fill(&m, &v)
		}
	case TypeApprovalResponse:
		read(new(struct {
			Approvals         oldApprovals `json:"approvals"`
			Approve           *bool        `json:"approve"`
			ApprovalRequestID *string      `json:"approval_request_id"`
			Reason            *string      `json:"reason"`
		}))
	case TypeSummary:
		read(new(struct {
			Summary         string              `json:"summary"`
			CompactionStats *oldCompactionStats `json:"compaction_stats"`
		}))
	case TypeEvent:
		read(new(struct {
			EventType string          `json:"event_type"`
			EventData json.RawMessage `json:"event_data"`
		}))
	}
	m.Type, m.JSON = kind, kept(raw)
	return m, err
}

// oldResponse reads an answer.
func oldResponse(text []byte) (*LettaResponse, error) {
	var v struct {
		Messages   oldMessageList `json:"messages"`
		StopReason struct {
			StopReason StopReason `json:"stop_reason"`
		} `json:"stop_reason"`
		Usage oldUsageStatistics `json:"usage"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	out := &LettaResponse{Messages: Messages(v.Messages), StopReason: v.StopReason.StopReason}
	fill(&out.Usage, &v.Usage)
	return out, nil
}

type oldMessageList []Message

func (l *oldMessageList) UnmarshalJSON(b []byte) (err error) {
	*l, err = oldMessages(b)
	return err
}

// fill sets the fields of to that from, a struct of the reference, has under their names.
func fill(to, from any) { fillValue(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()) }

func fillValue(to, from reflect.Value) {
	switch {
	case from.Type() == to.Type():
		to.Set(from)
	case from.Type() == reflect.TypeFor[json.RawMessage]():
		to.SetString(string(kept(from.Bytes())))
	case from.Kind() == reflect.Pointer:
		if to.SetZero(); from.IsNil() {
			return
		}
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		fillValue(to, from.Elem())
	case from.Kind() == reflect.Slice:
		if to.SetZero(); from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			fillValue(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Struct:
		for f, v := range from.Fields() {
			if field := to.FieldByName(f.Name); field.IsValid() {
				fillValue(field, v)
			}
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// withoutInner empties the text of the objects within an object, which the reference does
// not keep.
func withoutInner(v reflect.Value, inner bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			withoutInner(v.Elem(), inner)
		}
	case reflect.Slice:
		for i := range v.Len() {
			withoutInner(v.Index(i), true)
		}
	case reflect.Struct:
		for f, field := range v.Fields() {
			switch {
			case f.Name == "JSON" && inner:
				field.SetString("")
			case f.Name == "Messages" && field.Type() == reflect.TypeFor[Messages]():
				for i := range field.Len() {
					withoutInner(field.Index(i), false)
				}
			case f.IsExported():
				withoutInner(field, true)
			}
		}
	}
}

// A kindOfText is one kind of answer, read in both ways.
type kindOfText struct {
	name string
	ours func(text string) (any, error)
	// reference returns what ours should return, but for the text of the whole.
	reference func(text []byte) (any, error)
}

// plainKind is a kind of object: T as the reference reads it with O.
func plainKind[T, O any](name string, read func(string) (*T, error)) kindOfText {
	return kindOfText{name, func(text string) (any, error) {
		v, err := read(text)
		return v, err
	}, func(text []byte) (any, error) {
		old, v := new(O), new(T)
		if err := json.Unmarshal(text, old); err != nil {
			return nil, err
		}
		fill(v, old)
		return v, nil
	}}
}

var kindsOfText = []kindOfText{
	plainKind[Step, oldStep]("step", Read[Step]),
	plainKind[StepMetrics, oldStepMetrics]("metrics", Read[StepMetrics]),
	plainKind[Run, oldRun]("run", Read[Run]),
	plainKind[Conversation, oldConversation]("conversation", Read[Conversation]),
	plainKind[Tool, oldTool]("tool", Read[Tool]),
	plainKind[AgentState, oldAgentState]("agent", Read[AgentState]),
	{
		"answer", func(text string) (any, error) { return Read[LettaResponse](text) },
		func(text []byte) (any, error) { return oldResponse(text) },
	},
	{
		"messages", func(text string) (any, error) {
			list, err := ReadList[Message](text)
			return &LettaResponse{Messages: list, JSON: kept([]byte(strings.Trim(text, " \t\r\n")))}, err
		},
		func(text []byte) (any, error) {
			if !json.Valid(text) {
				return nil, fmt.Errorf("not JSON")
			}
			list, err := oldMessages([]byte(strings.Trim(string(text), " \t\r\n")))
			return &LettaResponse{Messages: list}, err
		},
	},
}

// sameText compares both ways of reading a text.
func sameText(t *testing.T, of kindOfText, text []byte) {
	t.Helper()
	got, err := of.ours(string(text))
	want, wantErr := of.reference(text)
	if (err != nil) != (wantErr != nil) {
		t.Errorf("%s: read %.600q: %v; encoding/json: %v", of.name, text, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	whole := reflect.ValueOf(got).Elem().FieldByName("JSON")
	if trimmed := kept([]byte(strings.Trim(string(text), " \t\r\n"))); whole.String() != string(trimmed) {
		t.Errorf("%s: kept %.600q, want %.600q", of.name, whole, trimmed)
	}
	whole.SetString("")
	withoutInner(reflect.ValueOf(got), false)
	withoutInner(reflect.ValueOf(want), false)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: read %.900q:\n got %+v\nwant %+v", of.name, text, got, want)
	}
}

// recordedOf are the recorded texts of each kind, in the order of kindsOfText.
func recordedOf(tb testing.TB) [][]json.RawMessage {
	tb.Helper()
	all := make([][]json.RawMessage, len(kindsOfText))
	recordedTexts(tb, func(r *recordedLife) (some []json.RawMessage) {
		put := func(name string, texts ...json.RawMessage) {
			for i := range kindsOfText {
				if kindsOfText[i].name == name {
					all[i] = append(all[i], texts...)
				}
			}
		}
		if len(r.Agent) > 0 {
			put("agent", r.Agent)
		}
		if len(r.Conversation) > 0 {
			put("conversation", r.Conversation)
		}
		put("tool", r.Tools...)
		for _, e := range r.Exchanges {
			if e.Response.Status == 200 {
				var whole map[string]json.RawMessage
				_ = json.Unmarshal(e.Response.Body, &whole)
				delete(whole, "turns")
				delete(whole, "logprobs")
				rest, _ := json.Marshal(whole)
				put("answer", rest)
			}
			for _, run := range e.Runs {
				put("run", run.Run)
				put("step", run.Steps...)
				put("metrics", run.Steps...)
				put("messages", run.Messages)
			}
		}
		return []json.RawMessage{nil}
	})
	for i := range all {
		all[i] = append(all[i], madeUp[kindsOfText[i].name]...)
		if len(all[i]) == 0 {
			tb.Fatalf("no recorded %s", kindsOfText[i].name)
		}
	}
	return all
}

const longText = `{\"path\": \"src/größer.py\", \"content\": \"if err != nil {\\n\\t“return” \ud83d\ude00 日本語 \\\"it\\\"\\n}\"}`

// madeUp are texts of what recordings lack.
var madeUp = map[string][]json.RawMessage{
	"messages": {
		json.RawMessage(`[{"message_type":"tool_call_message","tool_call":{"name":"a","arguments":"{\"x\": \"é\\n\"}","tool_call_id":"c"},"tool_calls":null}]`),
		json.RawMessage(`[{"tool_calls":{"name":"a"},"message_type":"tool_call_message","step_id":"s","step_id":null},null,{"message_type":"new","content":1}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_call_id":"c","tool_return":"x","status":"error","stdout":["a",null],"stderr":[],"tool_returns":[]}]`),
		json.RawMessage(`[{"content":[{"text":1,"type":"image"},{"text":"b","type":"text"},null],"message_type":"user_message","Name":"N","name":null}]`),
		json.RawMessage(`[{"content":5,"message_type":"user_message","message_type":"reasoning_message","reasoning":"r"},{"message_type":"reasoning_message","content":5,"message_type":"user_message"}]`),
		json.RawMessage(`[{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true,"reason":null},{"tool_return":[{"type":"text","text":"t"}],"type":"tool"},{"type":"x","approve":3}],"approve":false}]`),
		json.RawMessage(`[{"message_type":"summary_message","summary":"s","compaction_stats":{"trigger":"t","context_tokens_before":1,"context_window":2}},{"message_type":"event_message","event_data":{"a":[1,2]}}]`),
		// Long strings twice, and such that begin alike.
		json.RawMessage(`[{"message_type":"tool_call_message","tool_call":{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},"tool_calls":[{"name":"w","arguments":"` + longText + `","tool_call_id":"c"},{"name":"w","arguments":"` + longText + ` more"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":"` + longText + `","status":"success","tool_call_id":"c","tool_returns":[{"type":"tool","tool_return":"` + longText + `","tool_call_id":"c"}]},{"` + longText + `":"` + longText + `","message_type":"user_message","content":[{"type":"text","text":"` + longText + `"},{"text":"` + longText + `","type":"image"}]}]`),
		json.RawMessage(`[{"message_type":"tool_return_message","tool_return":["` + longText + `"],"tool_call_id":"c","tool_returns":[{"tool_return":"` + longText + `"}]},{"message_type":"tool_call_message","tool_call":["` + longText + `"],"tool_calls":[{"arguments":"` + longText + `"}]}]`),
		json.RawMessage(`[{"message_type":"hidden_reasoning_message","state":"omitted"},{"message_type":"assistant_message","content":"\ud83d\ude00\ud83d","seq_id":1,"is_err":null}]`),
	},
	"answer": {json.RawMessage(`{"messages":[{"message_type":"user_message","content":"a"}],"messages":null,"stop_reason":null,"usage":{"run_ids":["a"],"step_count":3,"step_count":null}}`)},
	"step":   {json.RawMessage(`{"id":"s","error_data":{"message":"m","details":{"a":1}},"error_data":{"traceback":"t"},"tags":["a","b"],"tags":["c",null],"stop_reason":null,"completion_tokens":0}`)},
}

// TestReadAsBefore compares both ways of reading on all recorded texts and on what
// mutations make of them.
func TestReadAsBefore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	all := recordedOf(t)
	rounds := 4_000
	if testing.Short() {
		rounds = 1_000
	}
	for i, of := range kindsOfText {
		for _, text := range all[i] {
			sameText(t, of, text)
		}
		for range rounds {
			text := []byte(all[i][r.IntN(len(all[i]))])
			if len(text) > 20_000 && r.IntN(10) > 0 {
				continue
			}
			for range 1 + r.IntN(3) {
				text = mutated(r, text)
			}
			if sameText(t, of, text); t.Failed() {
				return
			}
		}
	}
}

// FuzzRead compares both ways of reading.
func FuzzRead(f *testing.F) {
	for i, texts := range recordedOf(f) {
		for _, text := range texts[max(0, len(texts)-20):] {
			if len(text) < 4<<10 {
				f.Add(uint8(i), []byte(text))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		sameText(t, kindsOfText[int(kind)%len(kindsOfText)], text)
	})
}

// TestNesting: the limit is that of encoding/json.
func TestNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{maxNesting - 3, maxNesting - 2, maxNesting - 1, maxNesting, maxNesting + 1} {
		text := `{"metadata":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}"
		_, err := Read[Run](text)
		if want := json.Unmarshal([]byte(text), new(oldRun)); (err != nil) != (want != nil) {
			t.Errorf("depth %d: %v, encoding/json: %v", depth, err, want)
		}
	}
}

// TestErrorsSayWhere: an error names the way to the value, and what stands there.
func TestErrorsSayWhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{
			`{"messages":[{"message_type":"user_message"},{"message_type":"tool_call_message","tool_calls":[{"name":5}]}]}`,
			"messages: element 1: tool_calls: element 0: name: a number where a string is expected (byte 103)",
		},
		{`{"messages":{}}`, "messages: an object where a list is expected (byte 12)"},
		{`{"messages":[1]}`, "messages: element 0: a number where an object is expected (byte 13)"},
		{`{"messages":[{"message_type":[]}]}`, "messages: element 0: message_type: a list where a string is expected (byte 29)"},
		{`{"usage":{"step_count":3000000000}}`, "usage: step_count: the number 3000000000 where an integer of 32 bits is expected (byte 23)"},
		{`{"usage":{"total_tokens":1.5}}`, "usage: total_tokens: the number 1.5 where an integer of 64 bits is expected (byte 25)"},
		{`{"messages":[]`, "not JSON: the text ends where ',' or '}' is expected (byte 14)"},
		{`{"messages":[],}`, `not JSON: "}" where a name is expected (byte 15)`},
		{`{"messages":[{"message_type":"tool_call_message","tool_call":{"name":{}}}]}`, "messages: element 0: tool_call: name: an object where a string is expected (byte 8)"},
		{`{} x`, `not JSON: "x" where the end is expected (byte 3)`},
	} {
		if _, err := Read[LettaResponse](test.text); err == nil || err.Error() != test.want {
			t.Errorf("Read(%s)\n = %v\nwant %s", test.text, err, test.want)
		}
	}
}

// TestWith changes one member of an object and leaves all else as it is.
func TestWith(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{`{ "a" : 1.0 , "b":"\u00e9" }`, `{ "a" : 1.0 , "b":true }`},
		{`{"b": {"b":1} ,"c":2}`, `{"b": true ,"c":2}`},
		{`{"c":2 }`, `{"c":2 ,"b":true}`},
		{`{}`, `{"b":true}`},
	} {
		if got, err := RawJSON(test.in).With("b", "true"); err != nil || string(got) != test.want {
			t.Errorf("With(%s) = %s, %v, want %s", test.in, got, err, test.want)
		}
	}
	for _, bad := range []RawJSON{"", "null", "[]", `{"a"`, `"b"`} {
		if got, err := bad.With("b", "true"); err == nil {
			t.Errorf("With(%s) = %s, want an error", bad, got)
		}
	}
	if got := RawJSON(`{"a":[1, 2],"a":"x"}`).Member("a"); got != `"x"` {
		t.Errorf("Member = %s, want the last", got)
	}
}
