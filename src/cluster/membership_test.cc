#include "cluster/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeHello node(const std::string& name, int node_rank = -1, int first_rank = -1, int num_ranks = 0) {
  return {.name = name, .address = "10.0.0.1", .node_rank = node_rank, .first_rank = first_rank, .num_ranks = num_ranks};
}

std::vector<int> ranks_of(const std::variant<MemberNode, Refusal>& admitted) {
  const auto* member = std::get_if<MemberNode>(&admitted);
  return member == nullptr ? std::vector<int>{} : member->ranks;
}

std::string refusal_of(const std::variant<MemberNode, Refusal>& admitted) {
  const auto* refusal = std::get_if<Refusal>(&admitted);
  return refusal == nullptr ? "" : refusal->reason;
}

void pass_checks(Membership& members) {
  for (const auto& [id, member] : members.nodes()) members.find(id)->state = NodeState::kJoined;
}

TEST(Membership, DealsTheWorldOverTheNodes) {
  Membership members(5, 2);
  EXPECT_THAT(ranks_of(members.admit(node("a", 0), {})), ElementsAre(0, 1, 2));
  EXPECT_THAT(members.free_ranks(), ElementsAre(3, 4));
  EXPECT_THAT(ranks_of(members.admit(node("b"), {})), ElementsAre(3, 4));
  EXPECT_FALSE(members.complete());  // checks are not passed yet
  pass_checks(members);
  EXPECT_TRUE(members.complete());
  EXPECT_EQ(members.node_of(4)->name, "b");
}

TEST(Membership, NodesMayComeInAnyOrderAndNameTheirPlace) {
  Membership members(6, 3);
  EXPECT_THAT(ranks_of(members.admit(node("a", 0), {})), ElementsAre(0, 1));
  EXPECT_THAT(ranks_of(members.admit(node("c", 2), {})), ElementsAre(4, 5));
  EXPECT_THAT(ranks_of(members.admit(node("b"), {})), ElementsAre(2, 3));
}

TEST(Membership, OneProcessARankTakesExactlyItsRank) {
  Membership members(3, 0);
  EXPECT_THAT(ranks_of(members.admit(node("a", -1, 0, 1), {})), ElementsAre(0));
  EXPECT_THAT(ranks_of(members.admit(node("a", -1, 2, 1), {})), ElementsAre(2));
  EXPECT_THAT(refusal_of(members.admit(node("a", -1, 2, 1), {})), HasSubstr("rank 2 belongs to a-2"));
  EXPECT_THAT(refusal_of(members.admit(node("a", -1, 3, 1), {})), HasSubstr("asks for rank 3, the cluster has 3 ranks"));
  EXPECT_THAT(refusal_of(members.admit(node("a", -1, 2147483647, 2147483647), {})), HasSubstr("asks for ranks 2147483647-4294967293"));
  EXPECT_THAT(ranks_of(members.admit(node("a", -1, 1, 1), {})), ElementsAre(1));
}

TEST(Membership, OneAddressOnTwoMachinesIsRefused) {
  Membership members(3, 3);
  NodeHello here = node("a", 0);
  here.machine = "boot1 net:[1]";
  members.admit(here, {});
  NodeHello there = node("b");
  there.machine = "boot2 net:[1]";
  EXPECT_THAT(refusal_of(members.admit(there, {})), HasSubstr("its address 10.0.0.1 is that of a as well. --network-interface"));
  there.address = "127.0.0.1";
  EXPECT_THAT(refusal_of(members.admit(there, {})), HasSubstr("127.0.0.1 leads from a to a itself"));
  there.address = "10.0.0.2";
  EXPECT_THAT(ranks_of(members.admit(there, {})), ElementsAre(1));
  NodeHello again = node("c");  // a second process of the first machine
  again.machine = here.machine;
  EXPECT_THAT(ranks_of(members.admit(again, {})), ElementsAre(2));
}

TEST(Membership, AFullClusterAsksToTryLater) {
  Membership members(1, 1);
  members.admit(node("a", 0), {});
  const auto admitted = members.admit(node("b"), {});
  EXPECT_THAT(refusal_of(admitted), HasSubstr("the only rank has a node already; the head was started for one node: -tp 2 --nnodes 2 there"));
  EXPECT_TRUE(std::get<Refusal>(admitted).retry);
  Membership two(2, 2);
  two.admit(node("a", 0), {});
  two.admit(node("b", 1), {});
  EXPECT_EQ(refusal_of(two.admit(node("c"), {})), "all 2 ranks have a node already");
}

TEST(Membership, AWrongNodeRankIsRefusedForGood) {
  Membership members(2, 2);
  const auto admitted = members.admit(node("b", 2), {});
  EXPECT_THAT(refusal_of(admitted), HasSubstr("--node-rank 2"));
  EXPECT_FALSE(std::get<Refusal>(admitted).retry);
}

TEST(Membership, ANodeThatLeavesFreesItsRanksAndComesBackAsAnother) {
  Membership members(2, 2);
  members.admit(node("a", 0), {});
  const auto first = std::get<MemberNode>(members.admit(node("b"), {}));
  members.remove(first.id);
  EXPECT_THAT(members.free_ranks(), ElementsAre(1));
  const auto second = std::get<MemberNode>(members.admit(node("b"), {}));
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(second.name, "b");
}

TEST(Membership, EqualNamesAreTold) {
  Membership members(3, 3);
  EXPECT_EQ(std::get<MemberNode>(members.admit(node("host"), {})).name, "host");
  EXPECT_EQ(std::get<MemberNode>(members.admit(node("host"), {})).name, "host-2");
  EXPECT_EQ(std::get<MemberNode>(members.admit(node("host"), {})).name, "host-3");
  Membership nameless(2, 2);
  EXPECT_EQ(std::get<MemberNode>(nameless.admit(node(""), {})).name, "node");
  EXPECT_EQ(std::get<MemberNode>(nameless.admit(node(""), {})).name, "node-2");
}

TEST(Membership, RankLists) {
  EXPECT_EQ(describe_ranks({0, 1, 2, 7}), "0-2, 7");
  EXPECT_EQ(name_ranks({8, 9}), "ranks 8-9");
  EXPECT_EQ(name_ranks({1}), "rank 1");
}

}  // namespace
}  // namespace tutti
