-- Name of the model of a problem, and the shape that identifies it.
-- Grain: one row per problem
-- Key: problem_id
--
-- A model of table `model` keeps its name while its shape is that of its row; differences follow
-- the name. A model without a name is called by its parameters, its shape or its FLOPs. Names are
-- rounded: equal shapes, not equal names, make models the same.
select
    problem.problem_id,
    case
        when problem.model is not null
            then
                problem.model || coalesce(
                    ' with ' || nullif(
                        concat_ws(
                            ', ',
                            if_changed(
                                'num_layers ' || problem.num_layers,
                                problem.num_layers,
                                model.num_layers
                            ),
                            if_changed(
                                'hidden_size ' || problem.hidden_size,
                                problem.hidden_size,
                                model.hidden_size
                            ),
                            if_changed(
                                'ffn_hidden_size ' || problem.ffn_hidden_size,
                                problem.ffn_hidden_size,
                                model.ffn_hidden_size
                            ),
                            if_changed(
                                'uses_glu ' || problem.uses_glu, problem.uses_glu, model.uses_glu
                            ),
                            if_changed(
                                'num_heads ' || problem.num_heads,
                                problem.num_heads,
                                model.num_heads
                            ),
                            if_changed(
                                'num_kv_heads ' || problem.num_kv_heads,
                                problem.num_kv_heads,
                                model.num_kv_heads
                            ),
                            if_changed(
                                'seq_len ' || problem.seq_len, problem.seq_len, model.seq_len
                            ),
                            case
                                when
                                    model.model is not null
                                    and problem.vocab_size is distinct from model.vocab_size
                                    then 'vocab_size ' || problem.vocab_size
                            end,
                            if_changed(
                                'num_experts ' || problem.num_experts,
                                problem.num_experts,
                                coalesce(model.num_experts, 1)
                            ),
                            if_changed(
                                'experts_per_token ' || problem.experts_per_token,
                                problem.experts_per_token,
                                coalesce(model.experts_per_token, 1)
                            )
                        ),
                        ''
                    ),
                    ''
                )
        when problem.parameters is not null
            then
                printf('%gB parameters', problem.parameters / 1e9)
                || case
                    when problem.active_parameters <> problem.parameters
                        then printf(', %gB active', problem.active_parameters / 1e9)
                    else ''
                end
        when problem.num_layers is not null
            then
                concat_ws(
                    ', ',
                    problem.num_layers || ' x ' || problem.hidden_size,
                    'ffn ' || coalesce(problem.ffn_hidden_size, problem.internal_size),
                    case when coalesce(problem.uses_glu, problem.use_glu) then 'gated' end,
                    case
                        when problem.num_experts > 1
                            then
                                problem.num_experts
                                || ' experts'
                                || coalesce(', ' || problem.experts_per_token || ' a token', '')
                    end
                )
        else printf('%g FLOPs', problem.training_flops)
    end as model,
    concat_ws(
        ', ',
        'num_layers ' || problem.num_layers,
        'hidden_size ' || problem.hidden_size,
        'ffn_hidden_size ' || problem.ffn_hidden_size,
        'internal_size ' || problem.internal_size,
        'uses_glu ' || coalesce(problem.uses_glu, problem.use_glu),
        'num_heads ' || problem.num_heads,
        'num_kv_heads ' || problem.num_kv_heads,
        'multi_query_attention ' || problem.multi_query_attention,
        'head_size ' || problem.head_size,
        'num_experts ' || problem.num_experts,
        'experts_per_token ' || problem.experts_per_token,
        'expert_ffn_hidden_size ' || problem.expert_ffn_hidden_size,
        'num_shared_experts ' || problem.num_shared_experts,
        'num_dense_layers ' || problem.num_dense_layers,
        'moe_period ' || nullif(problem.moe_period, 1),
        'shared_ffn_hidden_size ' || nullif(
            problem.shared_ffn_hidden_size,
            coalesce(problem.num_shared_experts * problem.expert_ffn_hidden_size, 0)
        ),
        'num_mtp_layers ' || nullif(problem.num_mtp_layers, 0),
        'route_groups ' || nullif(problem.route_groups, 1),
        'route_groups_kept ' || nullif(problem.route_groups_kept, problem.route_groups),
        'q_lora_rank ' || nullif(problem.q_lora_rank, 0),
        'kv_lora_rank ' || nullif(problem.kv_lora_rank, 0),
        'qk_head_size ' || nullif(problem.qk_head_size, problem.head_size),
        'qk_rotary_size ' || nullif(problem.qk_rotary_size, 0),
        'v_head_size ' || nullif(problem.v_head_size, problem.head_size),
        'attention_window ' || nullif(problem.attention_window, 0),
        'window_period ' || nullif(problem.window_period, 0),
        'uses_chunked_attention ' || nullif(problem.uses_chunked_attention, false),
        'uses_qk_norm ' || nullif(problem.uses_qk_norm, false),
        'uses_attention_sinks ' || nullif(problem.uses_attention_sinks, false),
        'uses_linear_bias ' || nullif(problem.uses_linear_bias, not problem.uses_glu),
        'uses_gate_clamp ' || nullif(problem.uses_gate_clamp, false),
        'uses_yarn ' || nullif(problem.uses_yarn, false),
        'uses_router_bias ' || nullif(problem.uses_router_bias, false),
        'seq_len ' || problem.seq_len,
        'vocab_size ' || problem.vocab_size,
        'parameters ' || printf('%.17g', problem.parameters),
        'active_parameters ' || printf('%.17g', problem.active_parameters),
        'training_flops ' || printf('%.17g', problem.training_flops)
    ) as model_shape
from problem
left join model on problem.model = model.model
