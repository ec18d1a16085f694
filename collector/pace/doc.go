// Package pace decides when the next group of a run may begin, so that a trainer that takes
// groups while the run goes on gets them neither too many nor too old. It holds groups back
// and never discards one: what is discarded is the long ones first, and the data then looks
// shorter than what the policy does.
//
// Three rules, each of them optional, and two switches:
//
//	MaxAhead     at most K groups are begun and not yet acknowledged, filtered or failed
//	MaxLag       no group begins that would be more than K versions old when it is taken
//	UntilGroups  no group begins that is not needed to have N informative ones
//	Pause        nothing begins until Resume
//	Crowd        nothing begins while too much that was told is unread
//
// Groups begin in the order in which the caller has them: a [Pacer] holds the next one back,
// and all others wait behind it. A group that has begun is never held for its age: that would
// only make the samples of it older that are there already. The switches hold the rest of it too.
//
// # Lag
//
// The lag of a group is the number of versions that its policy is behind when it arrives:
// the version at the moment when it is whole, less the version of its oldest token. If no
// version is proven for some token, the version counts that was set when the group began. No
// token is older than that, so the lag is rather told too high than too low. Of a group that an
// earlier process began that version is not known, and then its lag is not known either.
//
// What a group will lag follows from what is in front of it. A trainer takes B groups in each
// version. A group that begins now finds N others: those that the trainer took since it set
// the version, those that wait for it, and those in progress. So the trainer sets N/B versions,
// rounded down, before it comes to this one, and the group may begin if these are at most K:
//
//	K = 1, B = 4    taken   wait   in progress
//	N = 7             ● ●    ● ●      ● ● ●       ○ begins: one version is set before it
//	N = 8             ● ●    ● ●     ● ● ● ●      ○ is held: it would be two
//
// In the long run N/B is D/T, the mean time D of a group by the time T that a version lasts:
// Little's law (Operations Research 9 (1961), 383). But it needs no mean of times that are
// known only of those that have ended, and it is right at once when a batch begins or a
// trainer waits. Where a share p of the groups is informative, those in progress count by p.
//
// B is the most of the last eight versions, and not their mean: a trainer whose batches differ
// would wait for groups that wait for its version. If fewer than two versions were ever set, or
// nothing was acknowledged in between, there is no B, and nothing is held back for its age.
//
// A trainer may wait all the same, if it needs more groups than it ever took. So if no group is
// in progress, and the version does not come within T, another B groups may begin after D
// more, and as many again after the next such wait.
//
// # How long a group takes
//
// D is not the mean of the groups that have arrived. Short ones arrive first, and a group that
// is in progress for long has told much by not being there. D is instead the time that all
// groups were in progress, those included that still are, by the number that arrived. That is
// the estimate of a mean from censored lives (exposure by events), and equals, where as many
// begin as end, the mean by Little's law (Operations Research 9 (1961), 383), whatever the
// distribution. As long as few have arrived it may be far too high; so it is at most the
// time in which any group was in progress: nothing can have taken longer. Old groups weigh
// less: after W others a group weighs 1/e. W is 128, or four times the groups in progress if
// that is more, so that the long ones of one batch do not outweigh the short ones. A window
// over a fixed time would be empty after a pause, and too short for slow tasks. A group that
// failed, or that an earlier process began, is in neither number.
//
// T is a mean over about eight versions. The time of a pause is in neither.
//
// # Enough
//
// An informative group is one that is given to the trainer. The groups in progress count by
// the share p of informative ones among those decided: a group begins only if the informative
// ones and p times those in progress are fewer than N. p begins at 1 and weighs that as much
// as one group, so at first N groups are in progress and not N/p.
package pace
