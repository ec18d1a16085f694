// Package pace decides when the next group of a run can begin. A trainer that takes groups during
// the run then gets neither too many nor too old groups. It holds groups back and discards none:
// discarding hits long groups first, and biases the data towards short ones.
//
// Three optional rules and two switches:
//
//	MaxAhead     at most K groups are begun and not yet acknowledged, filtered or failed
//	MaxLag       no group begins that would be more than K versions old when it is taken
//	UntilGroups  no group begins that is not needed to have N informative groups
//	Pause        nothing begins until Resume
//	HoldUnread   nothing begins while the reader has too many unread events
//
// Groups begin in the caller's order: a [Pacer] holds the next group back, and all others wait
// behind it. A group that has begun is never held for its age, but the switches hold its remaining
// samples too.
//
// # Lag
//
// The lag of a group is the number of versions that its policy is behind when the group becomes
// whole: the version then, less the version of its oldest token. If the version of some token is
// not proven, the version set when the group began is used. No token is older, so the lag is an
// upper bound. It is unknown if an earlier process began the group.
//
// The expected lag of a new group follows from the groups in front of it. A trainer takes B groups
// in each version. A group that begins now finds N others: groups that the trainer took since it
// set the version, groups that wait for it, and groups in progress. So the trainer sets N/B
// versions, rounded down, before it takes the new group. The group can begin if these are at most
// K:
//
//	K = 1, B = 4    taken   wait   in progress
//	N = 7             ● ●    ● ●      ● ● ●       ○ begins: one version is set before it
//	N = 8             ● ●    ● ●     ● ● ● ●      ○ is held: it would be two
//
// In the long run N/B is D/T, the mean time D of a group divided by the time T that a version
// lasts: Little's law (Operations Research 9 (1961), 383). But N/B is right at once when a batch
// begins or a trainer waits. If a share p of the groups is informative, each group in progress
// counts as p.
//
// B is the maximum over the last eight versions, and not their mean: otherwise a trainer with
// batches of different sizes would wait for groups that wait for its version. If fewer than two
// versions were ever set, or if nothing was acknowledged in between, B is unknown, and no group is
// held for its age.
//
// A trainer can still need more groups than it ever took. So if no group is in progress and no
// version is set within T, another B groups can begin after a further D. The same holds after the
// next such wait.
//
// # How long a group takes
//
// D is not the mean of the groups that have arrived, because short groups arrive first. D is the
// total time that all groups were in progress, including unfinished ones, divided by the number of
// arrivals: the estimate of a mean from censored lifetimes (exposure by events). If as many groups
// begin as end, it equals the mean by Little's law, for any distribution. With few arrivals it can
// be far too high. So it is at most the time in which any group was in progress.
//
// Old groups weigh less: after W other groups a group weighs 1/e. W is 128, or four times the
// groups in progress if that is more, so that the long groups of one batch do not outweigh the
// short ones. Groups that failed, or that an earlier process began, do not count.
//
// T is a mean over about eight versions. Neither D nor T includes paused time.
//
// # Enough
//
// An informative group is a group that is given to the trainer. p is the share of informative
// groups among the finished ones. A group begins only if the informative groups and p times the
// groups in progress are fewer than N. The share p begins at 1 with the weight of one group, so at
// first N groups are in progress and not N/p.
package pace
