mod generation;
mod identities;
mod random;
mod status;
mod task;
mod workloads;
mod world;
