//! The kinds that a server knows, with their peculiarities.

use super::refusal::Refusal;
use kube::api::ApiResource;

/// A kind.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Its status is a subresource.
    pub(super) has_status: bool,
    /// Its objects have a generation.
    pub(super) generations: bool,
    /// It is one of Kubernetes' own kinds.
    pub(super) builtin: bool,
    /// An object may be replaced without naming its version.
    pub(super) unconditional: bool,
    /// Replacing an object that does not exist creates it.
    pub(super) replace_creates: bool,
}

/// Kubernetes' own kinds without a status subresource, by plural.
const WITHOUT_STATUS: [&str; 24] = [
    "bindings",
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "controllerrevisions",
    "csidrivers",
    "csinodes",
    "endpoints",
    "endpointslices",
    "events",
    "ingressclasses",
    "leases",
    "limitranges",
    "mutatingwebhookconfigurations",
    "podtemplates",
    "priorityclasses",
    "rolebindings",
    "roles",
    "runtimeclasses",
    "secrets",
    "serviceaccounts",
    "storageclasses",
    "validatingwebhookconfigurations",
    "volumeattributesclasses",
];

/// Kubernetes' own kinds whose objects have a generation, by plural.
const WITH_GENERATION: [&str; 22] = [
    "apiservices",
    "controllerrevisions",
    "cronjobs",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "endpointslices",
    "flowschemas",
    "ingressclasses",
    "ingresses",
    "jobs",
    "mutatingwebhookconfigurations",
    "networkpolicies",
    "poddisruptionbudgets",
    "pods",
    "prioritylevelconfigurations",
    "priorityclasses",
    "replicasets",
    "replicationcontrollers",
    "statefulsets",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
];

impl Kind {
    /// Whether it has a status is known only for Kubernetes' own kinds; other kinds are assumed to have one.
    pub(super) fn new(resource: &ApiResource, namespaced: bool, has_status: Option<bool>) -> Self {
        let ApiResource { group, version, api_version, kind, plural } = resource.clone();
        let builtin = !group.contains('.') || group.ends_with(".k8s.io");
        let name = plural.as_str();
        let is_lease = builtin && name == "leases";
        Self {
            has_status: has_status.unwrap_or(!(builtin && WITHOUT_STATUS.contains(&name))),
            generations: !builtin || WITH_GENERATION.contains(&name),
            unconditional: builtin && !is_lease && name != "customresourcedefinitions",
            replace_creates: is_lease,
            group,
            version,
            api_version,
            kind,
            plural,
            namespaced,
            builtin,
        }
    }

    /// `websites.trial.dev`, as messages name a kind.
    pub(super) fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Index of the kind in the list of kinds.
    pub(super) kind: usize,
    /// `None` for all namespaces, and for a kind without namespaces.
    pub(super) namespace: Option<String>,
    /// `None` for the collection.
    pub(super) name: Option<String>,
    /// It is about the object's status.
    pub(super) status: bool,
}

impl Target {
    /// Parses a path.
    pub(super) fn parse(path: &str, kinds: &[Kind]) -> Result<Self, Refusal> {
        let unknown = || Refusal::no_such_path(path);
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(unknown()),
        };
        let find = |plural: &str, namespaced: bool| {
            kinds.iter().position(|kind| {
                kind.group == group
                    && kind.version == version
                    && kind.plural == plural
                    && (kind.namespaced || !namespaced)
            })
        };
        // A namespace's own subresources look like the kinds in it.
        let in_namespace = match rest {
            ["namespaces", _, "status" | "finalize", ..] => None,
            ["namespaces", namespace, plural, rest @ ..] => Some((*namespace, *plural, rest)),
            _ => None,
        };
        let (kind, namespace, rest) = match (in_namespace, rest) {
            (Some((namespace, plural, rest)), _) => {
                (find(plural, true).ok_or_else(unknown)?, Some(namespace.to_owned()), rest)
            }
            (None, [plural, rest @ ..]) => {
                let kind = find(plural, false).ok_or_else(unknown)?;
                // Without a namespace there is but the list of all of them.
                if kinds[kind].namespaced && !rest.is_empty() {
                    return Err(unknown());
                }
                (kind, None, rest)
            }
            (None, []) => return Err(unknown()),
        };
        let (name, status) = match rest {
            [] => (None, false),
            [name] => (Some((*name).to_owned()), false),
            [name, "status"] if kinds[kind].has_status => (Some((*name).to_owned()), true),
            _ => return Err(unknown()),
        };
        Ok(Self { kind, namespace, name, status })
    }
}
