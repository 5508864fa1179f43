//! From requests of the wire to calls of the core, and back. One module for each family of
//! requests; this one knows only which request belongs where.

mod configs;
mod error;
mod fetch;
mod groups;
mod metadata;
mod offsets;
mod produce;
mod topics;

use std::sync::Arc;

pub(crate) use produce::place as place_produce;

use crate::broker::Broker;
use crate::session::{Client, SessionError};
use crate::wire::{ApiKey, ApiVersionsResponse, ErrorCode, Request, Response};

/// Answers one request; `None` for one that gets no answer.
pub(crate) async fn answer(
    broker: Arc<Broker>,
    request: Request,
    version: i16,
    client: Client,
) -> Result<Option<Response>, SessionError> {
    let broker = &broker;
    let response: Response = match request {
        Request::Produce(request) => {
            let placed = produce::place(broker, request, version);
            return placed.answer().await;
        }
        Request::Fetch(request) => fetch::fetch(broker, request, version).await.into(),
        Request::ListOffsets(request) => blocking(|| offsets::list(broker, request)).into(),
        Request::OffsetForLeaderEpoch(request) => {
            blocking(|| offsets::for_leader_epoch(broker, request)).into()
        }
        Request::ApiVersions(request) => metadata::api_versions(&request, version).into(),
        Request::Metadata(request) => {
            blocking(|| metadata::metadata(broker, request, version)).into()
        }
        Request::DescribeCluster(request) => metadata::describe_cluster(broker, &request).into(),
        Request::FindCoordinator(request) => {
            blocking(|| metadata::find_coordinator(broker, request, version)).into()
        }
        Request::CreateTopics(request) => blocking(|| topics::create(broker, request)).into(),
        Request::DeleteTopics(request) => topics::delete(broker, request).await.into(),
        Request::CreatePartitions(request) => {
            blocking(|| topics::create_partitions(broker, request)).into()
        }
        Request::DeleteRecords(request) => {
            blocking(|| topics::delete_records(broker, request)).into()
        }
        Request::DescribeConfigs(request) => configs::describe(broker, request).into(),
        Request::AlterConfigs(request) => blocking(|| configs::replace(broker, request)).into(),
        Request::IncrementalAlterConfigs(request) => {
            blocking(|| configs::alter(broker, request)).into()
        }
        Request::InitProducerId(request) => {
            blocking(|| produce::init_producer_id(broker, &request)).into()
        }
        Request::JoinGroup(request) => groups::join(broker, request, version, client).await.into(),
        Request::SyncGroup(request) => groups::sync(broker, request).await.into(),
        Request::Heartbeat(request) => groups::heartbeat(broker, request).await.into(),
        Request::LeaveGroup(request) => groups::leave(broker, request, version).await.into(),
        Request::OffsetCommit(request) => groups::commit(broker, request).await.into(),
        Request::OffsetFetch(request) => {
            groups::fetch_offsets(broker, request, version).await.into()
        }
        Request::ListGroups(request) => groups::list(broker, request).await.into(),
        Request::DescribeGroups(request) => groups::describe(broker, request, version).await.into(),
        Request::DeleteGroups(request) => groups::delete(broker, request).await.into(),
    };
    Ok(Some(response))
}

/// The answer to an ApiVersions request of a version that is not served, in the form of version 0.
pub(crate) fn unsupported_api_versions() -> Response {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion,
        api_keys: ApiKey::advertised(),
        ..ApiVersionsResponse::default()
    }
    .into()
}

/// Runs what may wait for a disk without holding up other connections.
fn blocking<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}
