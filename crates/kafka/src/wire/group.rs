//! Membership of classic consumer groups (join, sync, heartbeat, leave), and their description,
//! listing and deletion. What members say to each other passes through as bytes.

use bytes::Bytes;

use super::ErrorCode;
use super::cluster::AUTHORIZED_OPERATIONS_UNKNOWN;
use super::table::messages;

messages! {
    /// Enters a group, or comes back for the next generation.
    pub struct JoinGroupRequest {
        group_id: String [0..],
        session_timeout_ms: i32 [0..],
        /// -1 in version 0, where the session timeout serves.
        rebalance_timeout_ms: i32 [1..] = -1,
        /// Empty on the first join.
        member_id: String [0..],
        group_instance_id: Option<String> [5.., nullable 5],
        protocol_type: String [0..],
        /// In order of preference.
        protocols: Vec<JoinGroupProtocol> [0..],
        reason: Option<String> [8.., nullable 8],
    }
    /// An assignor and what the member tells it.
    pub struct JoinGroupProtocol {
        name: String [0..],
        metadata: Bytes [0..],
    }
    /// The generation joined.
    pub struct JoinGroupResponse {
        throttle_time_ms: i32 [2..],
        error_code: ErrorCode [0..],
        generation_id: i32 [0..] = -1,
        protocol_type: Option<String> [7.., nullable 7],
        /// Null before a protocol is chosen; sent as empty to version 6.
        protocol_name: Option<String> [0.., nullable 7],
        leader: String [0..],
        skip_assignment: bool [9..],
        member_id: String [0..],
        /// All members for the leader, empty for the others.
        members: Vec<JoinGroupMember> [0..],
    }
    /// One member as the leader sees it.
    pub struct JoinGroupMember {
        member_id: String [0..],
        group_instance_id: Option<String> [5.., nullable 5],
        metadata: Bytes [0..],
    }

    /// Delivers (leader) and asks for (all) the assignment.
    pub struct SyncGroupRequest {
        group_id: String [0..],
        generation_id: i32 [0..],
        member_id: String [0..],
        group_instance_id: Option<String> [3.., nullable 3],
        protocol_type: Option<String> [5.., nullable 5],
        protocol_name: Option<String> [5.., nullable 5],
        /// Empty unless from the leader.
        assignments: Vec<SyncGroupAssignment> [0..],
    }
    /// Assignment of one member.
    pub struct SyncGroupAssignment {
        member_id: String [0..],
        assignment: Bytes [0..],
    }
    /// The member's assignment.
    pub struct SyncGroupResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..],
        protocol_type: Option<String> [5.., nullable 5],
        protocol_name: Option<String> [5.., nullable 5],
        assignment: Bytes [0..],
    }

    /// Says that a member is alive.
    pub struct HeartbeatRequest {
        group_id: String [0..],
        generation_id: i32 [0..],
        member_id: String [0..],
        group_instance_id: Option<String> [3.., nullable 3],
    }
    /// Whether the member is still in the generation.
    pub struct HeartbeatResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..],
    }

    /// Leaves a group: one member to version 2, several after.
    pub struct LeaveGroupRequest {
        group_id: String [0..],
        member_id: String [0..=2],
        members: Vec<LeavingMember> [3..],
    }
    /// One member that leaves.
    pub struct LeavingMember {
        member_id: String [3..],
        group_instance_id: Option<String> [3.., nullable 3],
        reason: Option<String> [5.., nullable 5],
    }
    /// Whether they left.
    pub struct LeaveGroupResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..],
        members: Vec<LeftMember> [3..],
    }
    /// Whether one member left.
    pub struct LeftMember {
        member_id: String [3..],
        group_instance_id: Option<String> [3.., nullable 3],
        error_code: ErrorCode [3..],
    }

    /// Asks for groups in detail.
    pub struct DescribeGroupsRequest {
        groups: Vec<String> [0..],
        include_authorized_operations: bool [3..],
    }
    /// Groups in detail.
    pub struct DescribeGroupsResponse {
        throttle_time_ms: i32 [1..],
        groups: Vec<DescribedGroup> [0..],
    }
    /// One group in detail.
    pub struct DescribedGroup {
        error_code: ErrorCode [0..],
        group_id: String [0..],
        group_state: String [0..],
        protocol_type: String [0..],
        protocol_data: String [0..],
        members: Vec<DescribedGroupMember> [0..],
        authorized_operations: i32 [3..] = AUTHORIZED_OPERATIONS_UNKNOWN,
    }
    /// One member in detail.
    pub struct DescribedGroupMember {
        member_id: String [0..],
        group_instance_id: Option<String> [4.., nullable 4],
        client_id: String [0..],
        client_host: String [0..],
        member_metadata: Bytes [0..],
        member_assignment: Bytes [0..],
    }

    /// Asks for the groups there are.
    pub struct ListGroupsRequest {
        /// Empty for all.
        states_filter: Vec<String> [4..],
        /// Empty for all.
        types_filter: Vec<String> [5..],
    }
    /// The groups there are.
    pub struct ListGroupsResponse {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..],
        groups: Vec<ListedGroup> [0..],
    }
    /// One group.
    pub struct ListedGroup {
        group_id: String [0..],
        protocol_type: String [0..],
        group_state: String [4..],
        group_type: String [5..],
    }

    /// Deletes groups without members.
    pub struct DeleteGroupsRequest {
        groups_names: Vec<String> [0..],
    }
    /// Which were deleted.
    pub struct DeleteGroupsResponse {
        throttle_time_ms: i32 [0..],
        results: Vec<DeletedGroup> [0..],
    }
    /// Whether one group was deleted.
    pub struct DeletedGroup {
        group_id: String [0..],
        error_code: ErrorCode [0..],
    }
}
