//! Compares our structures with the headers that programs are compiled against.

use std::fmt::Write as _;
use std::process::Command;

use super::c_struct::Layout;
use super::*;

const LAYOUTS: &[Layout] = &[
    ibv_device::LAYOUT,
    ibv_context_ops::LAYOUT,
    ibv_context::LAYOUT,
    verbs_context::LAYOUT,
    ibv_device_attr::LAYOUT,
    ibv_query_device_ex_input::LAYOUT,
    ibv_device_attr_ex::LAYOUT,
    ibv_port_attr::LAYOUT,
    ibv_gid_entry::LAYOUT,
    ibv_async_event::LAYOUT,
    ibv_pd::LAYOUT,
    ibv_mr::LAYOUT,
    ibv_mw::LAYOUT,
    ibv_ah::LAYOUT,
    ibv_comp_channel::LAYOUT,
    ibv_cq::LAYOUT,
    ibv_srq::LAYOUT,
    ibv_qp::LAYOUT,
    ibv_qp_cap::LAYOUT,
    ibv_qp_init_attr::LAYOUT,
    ibv_qp_init_attr_ex::LAYOUT,
    ibv_global_route::LAYOUT,
    ibv_ah_attr::LAYOUT,
    ibv_qp_attr::LAYOUT,
    ibv_srq_attr::LAYOUT,
    ibv_srq_init_attr::LAYOUT,
    ibv_srq_init_attr_ex::LAYOUT,
    ibv_ece::LAYOUT,
    ibv_sge::LAYOUT,
    ibv_data_buf::LAYOUT,
    ibv_qp_ex::LAYOUT,
    ibv_poll_cq_attr::LAYOUT,
    ibv_cq_ex::LAYOUT,
    ibv_cq_init_attr_ex::LAYOUT,
    ibv_mw_bind_info::LAYOUT,
    ibv_mw_bind::LAYOUT,
    ibv_send_wr::LAYOUT,
    ibv_recv_wr::LAYOUT,
    ibv_wc::LAYOUT,
    rdma_addr::LAYOUT,
    rdma_route::LAYOUT,
    rdma_event_channel::LAYOUT,
    rdma_cm_id::LAYOUT,
    rdma_conn_param::LAYOUT,
    rdma_ud_param::LAYOUT,
    rdma_cm_event::LAYOUT,
    rdma_addrinfo::LAYOUT,
    rdma_cm_join_mc_attr_ex::LAYOUT,
];

/// A C program that prints `STRUCT sizeof` and `STRUCT.FIELD offsetof` for everything we declare.
fn c_program() -> String {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for Layout { name, fields, .. } in LAYOUTS {
        writeln!(source, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _) in *fields {
            let field = field.trim_start_matches("r#");
            let (member, more) = field.split_once('+').unwrap_or((field, "0"));
            writeln!(
                source,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {member}) + {more});"
            )
            .unwrap();
        }
    }
    for (name, _) in numbers::ALL {
        writeln!(source, "printf(\"{name} %lld\\n\", (long long)({name}));").unwrap();
    }
    source.push_str("return 0; }\n");
    source
}

/// What that program prints when our declarations are right.
fn expected() -> String {
    let mut text = String::new();
    for Layout { name, size, fields } in LAYOUTS {
        writeln!(text, "{name} {size}").unwrap();
        for (field, offset) in *fields {
            writeln!(text, "{name}.{} {offset}", field.trim_start_matches("r#")).unwrap();
        }
    }
    for (name, value) in numbers::ALL {
        writeln!(text, "{name} {value}").unwrap();
    }
    text
}

/// A structure that is declared and not in the list would be right by luck.
#[test]
fn every_structure_is_compared() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layout");
    let mut declared = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // As `c_struct!` has it, with the size behind the name; its own pattern has a `$` there.
        let heads = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub struct ")?.split_once(" = "))
            .filter(|(name, _)| !name.starts_with('$'));
        for (name, _) in heads {
            let is_compared = LAYOUTS.iter().any(|layout| layout.name == name);
            assert!(is_compared, "{name} is not in LAYOUTS");
            declared += 1;
        }
    }
    assert_eq!(declared, LAYOUTS.len());
}

#[test]
fn the_headers_agree() {
    let folder = std::env::temp_dir().join(format!("weft-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, c_program()).unwrap();
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(
        compiled.expect("a C compiler").success(),
        "this test needs the packages libibverbs-dev and librdmacm-dev"
    );
    let printed = Command::new(&program).output().unwrap().stdout;
    std::fs::remove_dir_all(&folder).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    for (ours, theirs) in expected().lines().zip(printed.lines()) {
        assert_eq!(ours, theirs, "ours on the left, the headers' on the right");
    }
    assert_eq!(expected().lines().count(), printed.lines().count());
}
