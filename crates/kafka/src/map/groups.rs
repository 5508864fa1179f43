//! Groups: from the wire to the coordinator and back. The rules are in [`crate::group`].

use std::collections::BTreeMap;

use bytes::Bytes;

use super::metadata::operations;
use crate::broker::Broker;
use crate::group::message::{
    Commit, CommitPartition, FetchOffsets, FetchedOffset, Heartbeat, Join, Leave, MemberIdentity,
    Protocol, State, Sync,
};
use crate::group::{Code, Request, Response};
use crate::session::Client;
use crate::wire::{
    DeleteGroupsRequest, DeleteGroupsResponse, DeletedGroup, DescribeGroupsRequest,
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember, ErrorCode, HeartbeatRequest,
    HeartbeatResponse, JoinGroupMember, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, LeftMember, ListGroupsRequest, ListGroupsResponse, ListedGroup,
    OffsetCommitPartitionResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetCommitTopicResponse, OffsetFetchGroup, OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchTopic,
    OffsetFetchTopicResponse, SyncGroupRequest, SyncGroupResponse,
};

/// What a client is told when nobody answers for the group.
const NOBODY: ErrorCode = ErrorCode::CoordinatorNotAvailable;

fn wire(code: Code) -> ErrorCode {
    ErrorCode::from_code(code.number()).unwrap_or(ErrorCode::UnknownServerError)
}

/// A copy: a group keeps these bytes for long, and a slice would keep the whole read buffer.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// A coordinator answers each request in kind.
macro_rules! asked {
    ($broker:expr, $request:expr, $kind:path) => {
        match $broker.groups.ask($broker, $request).await {
            Ok($kind(response)) => Ok(response),
            Ok(other) => {
                tracing::error!(?other, "the coordinator answered another question");
                Err(ErrorCode::UnknownServerError)
            }
            Err(_not_available) => Err(NOBODY),
        }
    };
}

pub(super) async fn join(
    broker: &Broker,
    request: JoinGroupRequest,
    version: i16,
    client: Client,
) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    let protocols = request.protocols.into_iter();
    let join = Join {
        group_id: request.group_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        client_id: client.id,
        client_host: client.host,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        protocol_type: request.protocol_type,
        protocols: protocols
            .map(|p| Protocol { name: p.name, metadata: own(&p.metadata) })
            .collect(),
        requires_known_member_id: version >= 4,
        can_skip_assignment: version >= 9,
    };
    match asked!(broker, Request::Join(join), Response::Join) {
        Ok(joined) => {
            let members = joined.members.into_iter().map(|member| JoinGroupMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                metadata: member.metadata,
            });
            JoinGroupResponse {
                error_code: wire(joined.code),
                generation_id: joined.generation,
                protocol_type: joined.protocol_type,
                // Nullable from version 7 on; empty before.
                protocol_name: joined.protocol.or_else(|| (version < 7).then(String::new)),
                leader: joined.leader,
                skip_assignment: joined.skip_assignment,
                member_id: joined.member_id,
                members: members.collect(),
                ..JoinGroupResponse::default()
            }
        }
        Err(error_code) => JoinGroupResponse {
            error_code,
            protocol_name: (version < 7).then(String::new),
            member_id,
            ..JoinGroupResponse::default()
        },
    }
}

pub(super) async fn sync(broker: &Broker, request: SyncGroupRequest) -> SyncGroupResponse {
    let assignments = request.assignments.into_iter();
    let sync = Sync {
        group_id: request.group_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        generation: request.generation_id,
        protocol_type: request.protocol_type,
        protocol: request.protocol_name,
        assignments: assignments.map(|a| (a.member_id, own(&a.assignment))).collect(),
    };
    match asked!(broker, Request::Sync(sync), Response::Sync) {
        Ok(synced) => SyncGroupResponse {
            error_code: wire(synced.code),
            protocol_type: synced.protocol_type,
            protocol_name: synced.protocol,
            assignment: synced.assignment,
            ..SyncGroupResponse::default()
        },
        Err(error_code) => SyncGroupResponse { error_code, ..SyncGroupResponse::default() },
    }
}

pub(super) async fn heartbeat(broker: &Broker, request: HeartbeatRequest) -> HeartbeatResponse {
    let heartbeat = Heartbeat {
        group_id: request.group_id,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        generation: request.generation_id,
    };
    let answer = asked!(broker, Request::Heartbeat(heartbeat), Response::Heartbeat);
    let error_code = answer.map_or_else(|code| code, wire);
    HeartbeatResponse { error_code, ..HeartbeatResponse::default() }
}

pub(super) async fn leave(
    broker: &Broker,
    request: LeaveGroupRequest,
    version: i16,
) -> LeaveGroupResponse {
    let members = if version < 3 {
        vec![MemberIdentity { member_id: request.member_id, group_instance_id: None }]
    } else {
        let members = request.members.into_iter();
        members
            .map(|member| MemberIdentity {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
            })
            .collect()
    };
    let leave = Leave { group_id: request.group_id, members };
    match asked!(broker, Request::Leave(leave), Response::Leave) {
        // Before version 3 there is one member, and one code for it and all.
        Ok(left) if version < 3 => {
            let of_member = left.members.first().map_or(Code::None, |(_, code)| *code);
            let code = if left.code == Code::None { of_member } else { left.code };
            LeaveGroupResponse { error_code: wire(code), ..LeaveGroupResponse::default() }
        }
        Ok(left) => {
            let members = left.members.into_iter().map(|(member, code)| LeftMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: wire(code),
            });
            LeaveGroupResponse {
                error_code: wire(left.code),
                members: members.collect(),
                ..LeaveGroupResponse::default()
            }
        }
        Err(error_code) => LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() },
    }
}

pub(super) async fn commit(broker: &Broker, request: OffsetCommitRequest) -> OffsetCommitResponse {
    // Partitions of topics that do not exist are refused here; the coordinator knows no topics.
    let mut known = Vec::new();
    let mut answers: Vec<OffsetCommitTopicResponse> = Vec::new();
    for topic in request.topics {
        let exists = broker.catalog.get(&topic.name);
        let (mut taken, mut partitions) = (Vec::new(), Vec::new());
        for partition in topic.partitions {
            let index = partition.partition_index;
            let known = exists.as_ref().is_some_and(|topic| topic.partition(index).is_some());
            partitions.push(OffsetCommitPartitionResponse {
                partition_index: index,
                error_code: if known { NOBODY } else { ErrorCode::UnknownTopicOrPartition },
            });
            if known {
                taken.push(CommitPartition {
                    partition: index,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.unwrap_or_default(),
                    timestamp_ms: None,
                });
            }
        }
        answers.push(OffsetCommitTopicResponse { name: topic.name.clone(), partitions });
        known.push((topic.name, taken));
    }
    if known.iter().any(|(_, partitions)| !partitions.is_empty()) {
        let commit = Commit {
            group_id: request.group_id,
            member_id: request.member_id,
            group_instance_id: request.group_instance_id,
            generation: request.generation_id_or_member_epoch,
            retention_ms: Some(request.retention_time_ms).filter(|ms| *ms >= 0),
            topics: known,
        };
        if let Ok(topics) = asked!(broker, Request::Commit(commit), Response::Commit) {
            merge_codes(&mut answers, topics);
        }
    }
    OffsetCommitResponse { topics: answers, ..OffsetCommitResponse::default() }
}

/// Puts the coordinator's codes in their places; both lists are in the order of the request.
fn merge_codes(answers: &mut [OffsetCommitTopicResponse], topics: Vec<(String, Vec<(i32, Code)>)>) {
    for (answer, (_, codes)) in answers.iter_mut().zip(topics) {
        let mut codes = codes.into_iter();
        for partition in &mut answer.partitions {
            if partition.error_code == NOBODY
                && let Some((_, code)) = codes.next()
            {
                partition.error_code = wire(code);
            }
        }
    }
}

pub(super) async fn fetch_offsets(
    broker: &Broker,
    request: OffsetFetchRequest,
    version: i16,
) -> OffsetFetchResponse {
    if version >= 8 {
        let mut groups = Vec::new();
        for group in request.groups {
            groups.push(fetch_group(broker, group).await);
        }
        return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
    }
    let group = OffsetFetchGroup {
        group_id: request.group_id,
        topics: request.topics,
        ..OffsetFetchGroup::default()
    };
    let mut answer = fetch_group(broker, group).await;
    // Before version 2 there is no code but those of the partitions.
    if version < 2 {
        let of_partition = answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
        of_partition.for_each(|partition| partition.error_code = answer.error_code);
    }
    OffsetFetchResponse {
        topics: answer.topics,
        error_code: answer.error_code,
        ..OffsetFetchResponse::default()
    }
}

async fn fetch_group(broker: &Broker, group: OffsetFetchGroup) -> OffsetFetchGroupResponse {
    let OffsetFetchGroup { group_id, topics, .. } = group;
    let named = |topics: &Vec<OffsetFetchTopic>| {
        let named = topics.iter().map(|t| (t.name.clone(), t.partition_indexes.clone()));
        named.collect()
    };
    let fetch = FetchOffsets { group_id: group_id.clone(), topics: topics.as_ref().map(named) };
    let answer = asked!(broker, Request::FetchOffsets(fetch), Response::FetchOffsets);
    let (error_code, found) = match answer {
        Ok(found) => (ErrorCode::None, found),
        Err(code) => {
            let nothing = |topic: OffsetFetchTopic| {
                let none = topic.partition_indexes.into_iter().map(|partition| FetchedOffset {
                    partition,
                    offset: -1,
                    leader_epoch: -1,
                    metadata: String::new(),
                });
                (topic.name, none.collect())
            };
            (code, topics.into_iter().flatten().map(nothing).collect())
        }
    };
    let topics = found.into_iter().map(|(name, offsets): (String, Vec<FetchedOffset>)| {
        let partitions = offsets.into_iter().map(|fetched| OffsetFetchPartitionResponse {
            partition_index: fetched.partition,
            committed_offset: fetched.offset,
            committed_leader_epoch: fetched.leader_epoch,
            metadata: Some(fetched.metadata),
            error_code: ErrorCode::None,
        });
        OffsetFetchTopicResponse { name, partitions: partitions.collect() }
    });
    OffsetFetchGroupResponse { group_id, topics: topics.collect(), error_code }
}

pub(super) async fn list(broker: &Broker, request: ListGroupsRequest) -> ListGroupsResponse {
    let Ok(answers) = broker.groups.ask_all(&Request::List).await else {
        return ListGroupsResponse { error_code: NOBODY, ..ListGroupsResponse::default() };
    };
    let is_asked = |filter: &[String], value: &str| {
        filter.is_empty() || filter.iter().any(|asked| asked.eq_ignore_ascii_case(value))
    };
    let mut groups = BTreeMap::new();
    for answer in answers {
        let Response::List(listings) = answer else { continue };
        for listing in listings {
            if is_asked(&request.states_filter, listing.state.name())
                && is_asked(&request.types_filter, "classic")
            {
                let group = ListedGroup {
                    group_id: listing.group_id.clone(),
                    protocol_type: listing.protocol_type,
                    group_state: listing.state.name().to_owned(),
                    group_type: "classic".to_owned(),
                };
                groups.insert(listing.group_id, group);
            }
        }
    }
    ListGroupsResponse { groups: groups.into_values().collect(), ..ListGroupsResponse::default() }
}

pub(super) async fn describe(
    broker: &Broker,
    request: DescribeGroupsRequest,
    version: i16,
) -> DescribeGroupsResponse {
    let mut groups = Vec::new();
    for group_id in request.groups {
        let ask = Request::Describe { group_id: group_id.clone() };
        let mut group = match asked!(broker, ask, Response::Describe) {
            Ok(described) => {
                let members = described.members.into_iter().map(|member| DescribedGroupMember {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    client_id: member.client_id,
                    client_host: member.client_host,
                    member_metadata: member.metadata,
                    member_assignment: member.assignment,
                });
                DescribedGroup {
                    error_code: wire(described.code),
                    group_id,
                    group_state: described.state.name().to_owned(),
                    protocol_type: described.protocol_type,
                    protocol_data: described.protocol,
                    members: members.collect(),
                    ..DescribedGroup::default()
                }
            }
            Err(error_code) => DescribedGroup {
                error_code,
                group_id,
                group_state: State::Dead.name().to_owned(),
                ..DescribedGroup::default()
            },
        };
        if version >= 3 && request.include_authorized_operations {
            group.authorized_operations = operations::GROUP;
        }
        groups.push(group);
    }
    DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() }
}

pub(super) async fn delete(broker: &Broker, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::new();
    for group_id in request.groups_names {
        let ask = Request::DeleteGroup { group_id: group_id.clone() };
        let answer = asked!(broker, ask, Response::DeleteGroup);
        let error_code = answer.map_or_else(|code| code, wire);
        results.push(DeletedGroup { group_id, error_code });
    }
    DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() }
}
