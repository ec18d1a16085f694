package sink

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// SchemaVersion is the version of the columns of StoredRow and StoredFailure. A reader refuses
// shards with another schema version.
const SchemaVersion = 1

// ExpertsKey is the key of the metadata pair that describes the column routed_experts.
const ExpertsKey = "rollout.routed_experts"

// Metadata keys that the package itself writes into each shard.
const (
	metaSchemaVersion = "rollout.schema_version"
	metaRunID         = "rollout.run_id"
	metaKind          = "rollout.kind"
	metaExperts       = ExpertsKey
)

// expertsMeta describes the column routed_experts for numpy:
//
//	np.frombuffer(value, dtype).reshape(-1, *shape)
func expertsMeta(s tokenize.ExpertShape) string {
	return fmt.Sprintf(`{"dtype":"int%d","shape":[%d,%d],"experts":%d}`, 8*s.IDBytes(), s.Layers, s.TopK, s.Experts)
}

// expertsIn returns the shape of the routed experts in a shard, or zero if the shard has none.
func expertsIn(f io.ReaderAt, shard Shard) (tokenize.ExpertShape, error) {
	meta := map[string]string{}
	if err := fileMeta(f, shard, meta); err != nil {
		return tokenize.ExpertShape{}, err
	}
	return ExpertsOf(meta)
}

// ExpertsOf returns the shape of the routed experts in shards with this metadata, or zero if the shards
// have none. It returns an error if the pair rollout.routed_experts is not a shape.
func ExpertsOf(meta map[string]string) (s tokenize.ExpertShape, err error) {
	if meta[metaExperts] == "" {
		return s, nil
	}
	var v struct {
		Shape   [2]int
		Experts int
	}
	if err := json.Unmarshal([]byte(meta[metaExperts]), &v); err == nil {
		s, _ = tokenize.ParseExpertShape(fmt.Sprintf("%dx%d/%d", v.Shape[0], v.Shape[1], v.Experts))
	}
	if meta[metaExperts] != expertsMeta(s) {
		return s, fmt.Errorf("%s is %q, which is not a shape of routed experts", metaExperts, meta[metaExperts])
	}
	return s, nil
}

type shardMeta [1 + KindScores]map[string]string

// metaOf returns the metadata for the shards of each kind. It consists of the package's own pairs
// and the pairs in config.
func (d *Dataset) metaOf(config map[string]string) *shardMeta {
	var all shardMeta
	for kind := range all {
		all[kind] = map[string]string{
			metaSchemaVersion: strconv.Itoa(SchemaVersion),
			metaRunID:         d.cfg.RunID,
			metaKind:          Kind(kind).String(),
		}
		maps.Copy(all[kind], config)
	}
	return &all
}

// ownMeta returns the pairs in Config.Meta and the shape of the routed experts.
func (d *Dataset) ownMeta() map[string]string {
	if d.cfg.Experts == (tokenize.ExpertShape{}) {
		return d.cfg.Meta
	}
	all := maps.Clone(d.cfg.Meta)
	if all == nil {
		all = map[string]string{}
	}
	all[metaExperts] = expertsMeta(d.cfg.Experts)
	return all
}

// A StoredRow is one row of a data shard. It contains a training sequence of T tokens in K spans,
// and facts about its sample. The columns are the fields, in the same order. The `read` tag marks
// the columns that [Log.Facts] reads. Only the `parquet` tag determines how a column is encoded in
// Parquet. The tags follow these rules:
//
//   - The schema of the file must be identical to the schema of this struct. Otherwise parquet-go
//     silently falls back to reflection, which takes six times as long.
//   - Every nullable scalar is a pointer, because `optional` writes the zero value of a plain type
//     as null.
//   - No tag names a codec, because that would select the codec's slow default level.
//   - No token list uses dict, because tokenLists cannot read pages with a dictionary.
//   - loss_mask uses the encoding delta, ids use plain, and logprobs uses byte stream split. Each
//     column has the encoding that is smallest for its values.
type StoredRow struct {
	// SampleKey identifies the sample, which is stored exactly once. The key consists of
	// SampleIndex and a digest of the task.
	SampleKey string `parquet:"sample_key" read:"facts"`
	TaskID    string `parquet:"task_id" read:"facts"`
	GroupID   string `parquet:"group_id" read:"facts"`
	// RolloutID is the same in all rows of a sample.
	RolloutID   string `parquet:"rollout_id"`
	SampleIndex int32  `parquet:"sample_index" read:"facts"`
	GroupSize   int32  `parquet:"group_size" read:"facts"`
	Attempt     int32  `parquet:"attempt" read:"facts"`
	// SegmentIndex is the number of the row within its sample, from 0. SegmentCount is the number
	// of rows in the sample.
	SegmentIndex int32 `parquet:"segment_index" read:"facts"`
	SegmentCount int32 `parquet:"segment_count" read:"facts"`
	// Chain is the number of the row's conversation within the sample; 0 is the main conversation.
	// ChainKind is main, subagent or auxiliary. It is main if Chain is 0.
	Chain     int32  `parquet:"chain" read:"facts"`
	ChainKind string `parquet:"chain_kind,dict" read:"facts"`
	// ParentChain and ParentStep identify the call that started the conversation of a subagent: a
	// conversation of the sample, and the call's element of StepIDs in a row of that conversation.
	// The call can be missing from the rows. Both are nil if the call is not proven.
	ParentChain *int32 `parquet:"parent_chain,optional" read:"facts"`
	ParentStep  *int32 `parquet:"parent_step,optional" read:"facts"`

	// InputIDs, LossMask and Logprobs have length T; see tokenize.Row.
	InputIDs []int32   `parquet:"input_ids,list"`
	LossMask []int8    `parquet:"loss_mask,list" parquet-element:",delta"`
	Logprobs []float32 `parquet:"logprobs,list" parquet-element:",split"`
	// Versions has length T, or is nil if no version is known. tokenize.Row explains the value -1.
	Versions []int32 `parquet:"versions,list,optional"`
	// WeightVersions and WeightVersionEnds have one element per run of tokens with one weight version,
	// and SamplingMaskLengths has length T; see tokenize.Row. RoutedExperts has the bytes of
	// tokenize.Experts, and the footer has their shape (rollout.routed_experts). All of them are nil
	// unless the run keeps them.
	WeightVersions      []string `parquet:"weight_versions,list,optional" parquet-element:",dict"`
	WeightVersionEnds   []int32  `parquet:"weight_version_ends,list,optional"`
	RoutedExperts       []byte   `parquet:"routed_experts,optional"`
	SamplingMask        []int32  `parquet:"sampling_mask,list,optional"`
	SamplingMaskLengths []int32  `parquet:"sampling_mask_lengths,list,optional"`
	// TurnOffsets has length K+1. TurnRoles has length K.
	TurnOffsets []int32 `parquet:"turn_offsets,list" parquet-element:",delta" read:"facts"`
	TurnRoles   []int8  `parquet:"turn_roles,list" read:"facts"`
	// PromptLength is the number of tokens before the first sampled token.
	PromptLength int32 `parquet:"prompt_length" read:"facts"`

	// Reward is finite, or nil if the sample was not scored.
	Reward        *float64 `parquet:"reward,optional" read:"facts"`
	RewardDetails *string  `parquet:"reward_details,optional"` // JSON
	Status        string   `parquet:"status,dict" read:"facts"`
	StopReason    string   `parquet:"stop_reason,dict" read:"facts"`
	// FinishReasons has one element per call in the row: stop, length, or another word from the
	// engine. The element is empty if the reason is unknown. A call with the finish reason abort
	// is never in a row.
	FinishReasons []string `parquet:"finish_reasons,list" parquet-element:",dict"`
	// Truncated is true if and only if Flags contains cut or length. See "How a row ends" in the
	// package documentation.
	Truncated    bool   `parquet:"truncated" read:"facts"`
	Verification string `parquet:"verification,dict" read:"facts"`
	PromptSource string `parquet:"prompt_source,dict" read:"facts"`
	// Divergence is a JSON object that tokenize.Row.AppendDivergence wrote. Its members call,
	// offset, kind, row and prompt explain why the row is a fork. Its member realigned has one
	// object with the same five members for each output whose end was replaced. Divergence is nil
	// for most rows, because they are neither forks nor realigned.
	Divergence *string  `parquet:"divergence,optional" read:"facts"`
	Flags      []string `parquet:"flags,list" parquet-element:",dict" read:"facts"`
	Unscored   int32    `parquet:"n_unscored" read:"facts"`
	Trimmed    int32    `parquet:"n_trimmed" read:"facts"`

	// The sampling parameters that the engine used; nil if unknown.
	Temperature  *float32 `parquet:"temperature,optional"`
	TopP         *float32 `parquet:"top_p,optional"`
	TopK         *int32   `parquet:"top_k,optional"`
	MaxNewTokens *int32   `parquet:"max_new_tokens,optional"`

	Model   string   `parquet:"model,dict"`
	AgentID string   `parquet:"agent_id" read:"facts"`
	RunIDs  []string `parquet:"run_ids,list"`
	// StepIDs has one element per call in the row. An element is empty if the id is unknown.
	StepIDs []string `parquet:"step_ids,list"`

	// The server's own counts for the sample.
	PromptTokens     int64 `parquet:"prompt_tokens" read:"facts"`
	CompletionTokens int64 `parquet:"completion_tokens" read:"facts"`
	Steps            int32 `parquet:"steps" read:"facts"`

	// StartedAt is in microseconds since 1970, UTC.
	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)" read:"facts"`
	DurationMS int64 `parquet:"duration_ms" read:"facts"`
	// WorkingMS excludes queueing and backoff.
	WorkingMS int64 `parquet:"working_ms" read:"facts"`

	Messages *string `parquet:"messages,optional"` // JSON
	Metadata *string `parquet:"metadata,optional"` // JSON

	// PolicyVersionMin and PolicyVersionMax are the lowest and highest version of any sampled
	// token. The sampled tokens are the tokens in assistant spans, regardless of their loss mask.
	// Both fields are nil if Versions is nil or if the version of any sampled token is unknown.
	PolicyVersionMin *int32 `parquet:"policy_version_min,optional" read:"facts"`
	PolicyVersionMax *int32 `parquet:"policy_version_max,optional" read:"facts"`
	// Keep and KeepReason contain the decision of Config.Judge on the sample. Both fields are nil
	// if Judge did not decide.
	Keep       *bool   `parquet:"keep,optional" read:"facts"`
	KeepReason *string `parquet:"keep_reason,optional" read:"facts"`
}

// A StoredScore is one row of a shard in a scores set: the score of a sample that has rows. It
// replaces the values of the columns reward, reward_details, keep and keep_reason in all rows of
// the sample.
type StoredScore struct {
	SampleKey string `parquet:"sample_key" read:"facts"`
	// Reward is finite, or nil if the sample could not be scored.
	Reward        *float64 `parquet:"reward,optional" read:"facts"`
	RewardDetails *string  `parquet:"reward_details,optional"` // JSON
	// Failed is true if the scorer failed. The reward is then nil. It is also nil without a failure, if the
	// scorer decides so, or if the task has no answer.
	Failed     bool    `parquet:"failed" read:"facts"`
	Keep       *bool   `parquet:"keep,optional" read:"facts"`
	KeepReason *string `parquet:"keep_reason,optional" read:"facts"`
}

// A StoredFailure is one row of a failure shard. It describes a sample, or a call of a sample,
// that must not be trained on. The columns are the fields, in the same order.
type StoredFailure struct {
	SampleKey   string `parquet:"sample_key" read:"facts"`
	TaskID      string `parquet:"task_id" read:"facts"`
	GroupID     string `parquet:"group_id" read:"facts"`
	RolloutID   string `parquet:"rollout_id"`
	SampleIndex int32  `parquet:"sample_index" read:"facts"`
	GroupSize   int32  `parquet:"group_size" read:"facts"`
	Attempt     int32  `parquet:"attempt" read:"facts"`

	// Class, Stage, Reason and Error are copied from the tokenize.Failure.
	Class  string `parquet:"class,dict" read:"facts"`
	Stage  string `parquet:"stage,dict" read:"facts"`
	Reason string `parquet:"reason,dict" read:"facts"`
	Error  string `parquet:"error" read:"facts"`
	// Call is the index of the call in the sample, or -1 if the whole sample failed.
	Call int32 `parquet:"call" read:"facts"`

	// OutputIDs contains the sampled tokens that are available, and Logprobs contains their
	// log-probabilities. A log-probability is NaN if the server did not send it. (Data shards do
	// not allow NaN.) The two lists have different lengths if this difference caused the failure.
	OutputIDs []int32   `parquet:"output_ids,list" read:"facts"`
	Logprobs  []float32 `parquet:"logprobs,list" parquet-element:",split"`
	Text      string    `parquet:"text"`

	Status     string   `parquet:"status,dict" read:"facts"`
	StopReason string   `parquet:"stop_reason,dict" read:"facts"`
	Model      string   `parquet:"model,dict"`
	AgentID    string   `parquet:"agent_id" read:"facts"`
	RunIDs     []string `parquet:"run_ids,list"`

	PromptTokens     int64 `parquet:"prompt_tokens" read:"facts"`
	CompletionTokens int64 `parquet:"completion_tokens" read:"facts"`
	Steps            int32 `parquet:"steps" read:"facts"`

	StartedAt  int64 `parquet:"started_at,timestamp(microsecond:utc)" read:"facts"`
	DurationMS int64 `parquet:"duration_ms" read:"facts"`
	WorkingMS  int64 `parquet:"working_ms" read:"facts"`

	Messages *string `parquet:"messages,optional"` // JSON
	Metadata *string `parquet:"metadata,optional"` // JSON
}
